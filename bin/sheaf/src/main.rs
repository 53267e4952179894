//! The one binary: parse, build, run. Wiring only.

mod admin_password;
mod administrator;
mod ask;
mod audit;
mod data_dir;
mod deaths;
mod down;
mod failure;
mod keys;
mod limits;
mod listeners;
mod log;
mod look;
mod machines;
mod node;
mod panics;
mod run;
mod serve;
mod signals;
mod streams;

use std::process::ExitCode;

use sheaf_cli::Config;
use sheaf_world::World;

// After a peak the C library's allocator keeps what it has, in every arena; this one gives it back.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    sheaf_cli::completing::answer_a_shell(World::real());
    let config = match Config::from_args() {
        Ok(config) => config,
        Err(why) => return failure::Failure::from(why).tell(),
    };
    let outcome = match config {
        Config::Up(config) => run::run(config, serve::serve),
        Config::Down(config) => down::down(&config),
        Config::Install(config) => look::install(&config),
        Config::Demo(config) => ask::demo(&config),
        Config::Ask(config) => ask::ask(*config),
        Config::Login(config) => ask::login(&config),
        Config::Context(config) => ask::context(&config),
        Config::SupportBundle(config) => ask::support_bundle(&config),
        Config::Kubeconfig(config) => look::kubeconfig(&config),
        Config::RotateKey(data_dir) => ask::rotate_key(&data_dir),
        Config::Doctor(config) => look::doctor(&config),
        Config::Version(output) => look::version(output),
        Config::Completions(shell) => look::completions(shell),
        Config::LaunchMachine => Ok(sheaf_hypervisor::launcher::run()),
    };
    match outcome {
        Ok(code) => code,
        Err(why) => why.tell(),
    }
}
