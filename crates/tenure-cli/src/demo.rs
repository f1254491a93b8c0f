//! `tenure demo`: real contenders on a throw-away store, and a leader that is killed again and again.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::{BootClock, Clock, Key, Lease, Moment, Store, Token};

use crate::args::DemoArgs;
use crate::exit::{self, Failure, Outcome};
use crate::output::{paint, show};
use crate::run::Interrupts;
use crate::store::Place;

/// The word that makes this program a contender's work.
pub const WORK: &str = "__demo-work";
const KEY: &str = "demo";
const TTL: &str = "3s";
/// How long a killed contender stays away.
const AWAY: Duration = Duration::from_millis(1500);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often while the next leader is awaited.
const LOOK_CLOSELY_EVERY: Duration = Duration::from_millis(1);
const DRAW_EVERY: Duration = Duration::from_millis(100);
const LINES_KEPT: usize = 8;

/// One process that wants to lead.
struct Contender {
    name: String,
    lives: u32,
    process: Option<Child>,
    back_at: Moment,
    led: u32,
}

struct Demo {
    store_url: String,
    program: PathBuf,
    contenders: Vec<Contender>,
    leader: Option<(usize, Lease)>,
    since: Moment,
    killed_at: Option<Moment>,
    killed_token: Option<Token>,
    gaps: Vec<Duration>,
    story: VecDeque<String>,
    began: Moment,
    picture: Option<Picture>,
}

/// The live picture: how many lines of it are on the screen.
struct Picture {
    lines: usize,
}

/// The work of a contender: nothing, until it is ended, or the demo is gone and its
/// pipe with it.
pub fn work() -> Outcome {
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(0)
}

/// Runs the demo; ends by itself.
pub fn demo(args: &DemoArgs) -> Outcome {
    let broken = |error: io::Error| Failure::internal(format!("the demo cannot run: {error}"));
    let interrupts = Interrupts::catch().map_err(broken)?;
    let folder = tempfile::tempdir().map_err(broken)?;
    let program = std::env::current_exe().map_err(broken)?;
    let mut demo = Demo::new(folder.path(), program, args.contenders);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    let result = runtime.block_on(demo.play(args, &interrupts));
    demo.clear_away();
    let interrupted = result?;
    demo.close()?;
    Ok(interrupted.map_or(0, |signal| exit::of_signal(signal as i32)))
}

impl Demo {
    fn new(folder: &Path, program: PathBuf, count: u8) -> Self {
        let now = BootClock.now();
        let contender = |number| Contender {
            name: format!("node-{number}"),
            lives: 0,
            process: None,
            back_at: now,
            led: 0,
        };
        Self {
            store_url: format!("sqlite:{}", folder.join("leases.db").display()),
            program,
            contenders: (1..=count).map(contender).collect(),
            leader: None,
            since: now,
            killed_at: None,
            killed_token: None,
            gaps: Vec::new(),
            story: VecDeque::new(),
            began: now,
            picture: io::stdout().is_terminal().then_some(Picture { lines: 0 }),
        }
    }

    async fn play(
        &mut self,
        args: &DemoArgs,
        interrupts: &Interrupts,
    ) -> Result<Option<Signal>, Failure> {
        let store: Arc<dyn Store> = Place::new(Some(&self.store_url))?.open().await?;
        let key = Key::new(KEY)?;
        let ends_at = self.began + args.length;
        let mut draw_at = self.began;
        loop {
            let now = BootClock.now();
            if now >= ends_at {
                return Ok(None);
            }
            self.start_missing(now, interrupts)?;
            // A busy file is no news: the next look is soon.
            if let Ok(lease) = store.read(&key).await {
                self.see(lease, BootClock.now())?;
            }
            if self.leader.is_some() && now - self.since >= args.kill_every {
                self.kill_leader(now)?;
            }
            if now >= draw_at {
                self.draw()?;
                draw_at = now + DRAW_EVERY;
            }
            let look_after = match self.killed_at {
                Some(_) => LOOK_CLOSELY_EVERY,
                None => LOOK_EVERY,
            };
            if let Some(signal) = interrupts.wait(look_after) {
                return Ok(Some(signal));
            }
        }
    }

    fn start_missing(&mut self, now: Moment, interrupts: &Interrupts) -> Result<(), Failure> {
        for contender in &mut self.contenders {
            if contender.process.is_some() || now < contender.back_at {
                continue;
            }
            contender.lives += 1;
            // A new process is a new holder, also under an old name.
            let holder = format!("{}.{}", contender.name, contender.lives);
            let mut command = Command::new(&self.program);
            command
                .args(["run", KEY, "--store", &self.store_url, "--ttl", TTL])
                .args(["--holder", &holder, "--"])
                .arg(&self.program)
                .arg(WORK)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let process = interrupts.spawn(&mut command);
            let process = process
                .map_err(|error| Failure::internal(format!("cannot start {holder}: {error}")))?;
            contender.process = Some(process);
        }
        Ok(())
    }

    /// Takes in who leads now.
    fn see(&mut self, lease: Option<Lease>, now: Moment) -> io::Result<()> {
        let Some(lease) = lease else {
            self.leader = None;
            return Ok(());
        };
        // One that was just killed holds it until its last process is dead.
        if self.killed_token == Some(lease.token) {
            return Ok(());
        }
        let known = self.leader.as_ref().map(|(_, lease)| lease.token);
        let found = self.contenders.iter().position(|contender| {
            let name = lease.holder.as_str().rsplit_once('.');
            name.is_some_and(|(name, _)| name == contender.name)
        });
        let Some(index) = found else { return Ok(()) };
        if known != Some(lease.token) {
            let gap = self.killed_at.take().map(|at| now - at);
            let after = gap.map(|gap| format!(", {} ms after the kill", gap.as_millis()));
            self.gaps.extend(gap);
            self.since = now;
            self.contenders[index].led += 1;
            let name = &self.contenders[index].name;
            let text = format!(
                "{name} leads, token {}{}",
                lease.token,
                after.unwrap_or_default()
            );
            self.tell(&text, now)?;
        }
        self.leader = Some((index, lease));
        Ok(())
    }

    fn kill_leader(&mut self, now: Moment) -> io::Result<()> {
        let Some((index, lease)) = self.leader.take() else {
            return Ok(());
        };
        self.killed_token = Some(lease.token);
        let contender = &mut self.contenders[index];
        if let Some(mut process) = contender.process.take() {
            // Gone already is as good.
            let _ = process.kill();
            let _ = process.wait();
        }
        contender.back_at = now + AWAY;
        let text = format!("{} is killed (kill -9)", contender.name);
        self.killed_at = Some(now);
        self.since = now;
        self.tell(&text, now)
    }

    fn tell(&mut self, text: &str, now: Moment) -> io::Result<()> {
        let line = format!("{:>6.2} s  {text}", (now - self.began).as_secs_f64());
        if self.picture.is_none() {
            return crate::output::line(&line);
        }
        self.story.push_back(line);
        if self.story.len() > LINES_KEPT {
            self.story.pop_front();
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        let Some(picture) = &mut self.picture else {
            return Ok(());
        };
        let colour = crate::output::colour_on(&io::stdout());
        let mut lines = vec![String::new()];
        for (index, contender) in self.contenders.iter().enumerate() {
            let leads = self.leader.as_ref().filter(|(leader, _)| *leader == index);
            let state = match (&contender.process, leads) {
                (_, Some((_, lease))) => leading(lease, colour),
                (Some(_), None) => paint("○ waits", "2", colour),
                (None, None) => paint("✗ dead", "31", colour),
            };
            lines.push(format!(
                "  {:<8} {:>2}×  {state}",
                contender.name, contender.led
            ));
        }
        lines.push(String::new());
        lines.extend(self.story.iter().cloned());
        let mut stdout = io::stdout().lock();
        if picture.lines > 0 {
            write!(stdout, "\x1b[{}A\x1b[J", picture.lines)?;
        }
        picture.lines = lines.len();
        writeln!(stdout, "{}", lines.join("\n"))?;
        stdout.flush()
    }

    fn close(&mut self) -> io::Result<()> {
        self.gaps.sort_unstable();
        let changes: u32 = self.contenders.iter().map(|contender| contender.led).sum();
        let text = match self.gaps.get(self.gaps.len() / 2) {
            Some(median) => format!(
                "{changes} leaders in {}, one at a time; the next one led {} ms after a kill (median)",
                show(BootClock.now() - self.began),
                median.as_millis()
            ),
            None => format!(
                "{changes} leaders in {}",
                show(BootClock.now() - self.began)
            ),
        };
        crate::output::line(&text)
    }

    /// Ends all contenders and waits for them; their guardians end the rest.
    fn clear_away(&mut self) {
        for process in self.contenders.iter().filter_map(|c| c.process.as_ref()) {
            if let Ok(pid) = i32::try_from(process.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        let give_up_at = BootClock.now() + Duration::from_secs(3);
        for process in self
            .contenders
            .iter_mut()
            .filter_map(|c| c.process.as_mut())
        {
            while matches!(process.try_wait(), Ok(None)) {
                if BootClock.now() >= give_up_at {
                    let _ = process.kill();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The leader's state, with a bar for the rest of its term.
fn leading(lease: &Lease, colour: bool) -> String {
    let rest = lease.rest.unwrap_or_default();
    let part = rest.as_secs_f64() / lease.ttl.as_secs_f64().max(0.001);
    // A bar of twenty; the part is at most one.
    let full = (part.clamp(0.0, 1.0) * 20.0).round() as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(20 - full));
    let text = format!("● leads  token {}  {bar} {}", lease.token, show(rest));
    paint(&text, "32", colour)
}
