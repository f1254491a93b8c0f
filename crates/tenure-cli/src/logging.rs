//! Log lines on stderr: quiet unless asked.

use tracing_subscriber::filter::LevelFilter;

use crate::args::LogFormat;

/// Sends log lines to stderr: warnings by default, more with each `-v`.
pub fn start(verbose: u8, format: LogFormat) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    // A second start would be refused; the first one stays.
    let _ = match format {
        LogFormat::Json => lines.json().try_init(),
        LogFormat::Text => {
            let colour = crate::output::colour_on(&std::io::stderr());
            lines.with_ansi(colour).with_target(false).try_init()
        }
    };
}
