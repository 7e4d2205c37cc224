//! `cob`, the host command: it starts the virtual machine, connects the program in it with the caller's
//! descriptors, and ends as the program ended. Nothing of the guest lives here; what both sides agree on is
//! in the crate `link`. The shell script `./cob` at the root of the repository builds and starts it.
//!
//! - `cli`: the command line. `program`: which file PROGRAM means. `prepare`: what to start and what to tell the
//!   guest. `run`: one run from start to end; `supervise` follows it.
//! - `vm`, `qmp`: QEMU. `watch`: whether the machine makes progress. `session`: the link to the guest. `terminal`, `signals`: the caller's terminal and signals.
//! - `cpio`: writes an initramfs. `symbols`: names for the addresses in a panic.
//! - `disk`: disks that this command serves itself, and `cob disk`.
//! - `trace`: `cob trace`. `profile`: `cob profile`.
//! - `test`: `cob test` and `cob sim`. `fuzz`: `cob fuzz`. `bench`: `cob bench`.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod cpio;
mod disk;
mod fuzz;
mod prepare;
mod profile;
mod program;
mod qmp;
mod run;
mod session;
mod signals;
mod supervise;
mod symbols;
mod terminal;
mod test;
mod top;
mod trace;
mod vm;
mod watch;

use std::process::ExitCode;

use cli::Command;

/// The statuses of `cob` itself. All others are the program's.
pub mod status {
    /// Nothing was started: the command line or the program is not right.
    pub const USAGE: u8 = 2;
    pub const TIMEOUT: u8 = 124;
    pub const PANIC: u8 = 125;
}

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(stop) => return stop.show(),
    };
    let result = match command {
        Command::Run(options) => run::program(options),
        Command::Shell(options) => run::shell(options),
        Command::Trace(options) => trace::main(options),
        Command::Profile(options) => profile::main(options),
        Command::Top(options) => top::main(options),
        Command::Disk(options) => disk::main(options),
        Command::Test(options) => test::main(options),
        Command::Sim(options) => test::simulate(options),
        Command::Fuzz(options) => fuzz::main(options),
        Command::Bench(options) => bench::main(options),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("cob: {error:#}");
            ExitCode::from(status::USAGE)
        }
    }
}
