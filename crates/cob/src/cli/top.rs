//! The options of `cob top`.

use clap::Args;

#[derive(Debug, Args)]
pub struct TopOptions {
    /// Seconds from one look to the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print what the kernels do in one interval, and end.
    #[arg(long)]
    pub once: bool,
    /// Which machine, where several run: the process id of its command.
    #[arg(long, value_name = "PID")]
    pub machine: Option<i32>,
}

/// Shorter ones would mostly show the looking itself.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.1 to 3600".to_string()),
    }
}
