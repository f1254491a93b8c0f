//! `tenure-model check`: the full run. `tenure-model breaks`: each broken rule is found.
#![expect(clippy::print_stdout, reason = "this is a command")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread;

use tenure_model::runs::{self, Run};
use tenure_model::{Break, Outcome};

const USAGE: &str = "\
usage: tenure-model check    walks through everything within the bounds of the big run
       tenure-model real     only its part with the real elections
       tenure-model quick    the same within the bounds of the tests
       tenure-model breaks   leaves out one rule after another and shows how it goes wrong";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let good = match words.as_slice() {
        ["check"] => report_all(&[runs::big(), runs::big_real()].concat()),
        ["real"] => report_all(&runs::big_real()),
        ["quick"] => report_all(&[runs::bounded(), runs::bounded_real()].concat()),
        ["breaks"] => Break::ALL.into_iter().all(report_break),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn report_all(runs: &[Run]) -> bool {
    let mut states = 0;
    for run in runs {
        println!("{}", run.describe());
        let outcome = check(run);
        println!("  {}", counts(&outcome));
        for promise in &outcome.held {
            println!("  always  {promise}");
        }
        for sight in &outcome.seen {
            println!("  seen    {sight}");
        }
        for sight in &outcome.not_seen {
            println!("  NOT SEEN  {sight}");
        }
        for (promise, steps) in &outcome.violated {
            println!("  VIOLATED  {promise}");
            show(steps);
        }
        if !outcome.is_good() {
            return false;
        }
        states += outcome.states;
    }
    println!("in all {states} distinct states, no promise violated");
    true
}

fn report_break(broken: Break) -> bool {
    println!("{broken:?}");
    let outcome = check(&Run::broken(broken));
    println!("  {}", counts(&outcome));
    for (promise, steps) in &outcome.violated {
        println!("  found: not \"{promise}\"");
        show(steps);
    }
    if outcome.violated.is_empty() {
        println!("  NOT FOUND");
    }
    !outcome.violated.is_empty()
}

fn show(steps: &[String]) {
    for (number, step) in steps.iter().enumerate() {
        println!("    {:>3}  {step}", number + 1);
    }
}

fn check(run: &Run) -> Outcome {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    // One line that is written over, for people; a log gets one every half a minute.
    let on_terminal = std::io::stderr().is_terminal();
    let mut told = 0;
    let outcome = run.check(threads, |so_far| {
        let seconds = so_far.took.as_secs();
        if on_terminal {
            eprint!("\r  so far {}", counts(so_far));
            // A progress line that cannot be written is no reason to stop.
            let _ = std::io::stderr().flush();
        } else if seconds >= told + 30 {
            told = seconds;
            eprintln!("  so far {}", counts(so_far));
        }
    });
    if on_terminal {
        eprint!("\r{:78}\r", "");
    }
    outcome
}

fn counts(outcome: &Outcome) -> String {
    format!(
        "{} distinct states, {} steps, depth {}, {:.1} s",
        outcome.states,
        outcome.steps,
        outcome.depth,
        outcome.took.as_secs_f64()
    )
}
