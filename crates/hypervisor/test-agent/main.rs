//! Plays the node's agent, and the launcher, in this crate's tests.
//!
//!   hypervisor-test-agent launch
//!   hypervisor-test-agent act DIRECTORY MACHINE.json ACTS [STEP]
//!   hostile-qemu ANYTHING
//!
//! Under that last name it plays a QEMU that was taken over by its guest.
//!
//! ACTS are `define`, `launch`, `kill` and `forget`, with commas in between. After STEP
//! the process kills itself, as an agent might be killed there.

mod hostile;

use std::{env, fs, path::PathBuf, process::ExitCode, sync::Arc};

use sheaf_hypervisor::{
    Descriptors, Hypervisor, HypervisorConfig, Launcher, Machine, MachineId, Step, launcher,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if env::current_exe().is_ok_and(|program| program.ends_with(hostile::NAME)) {
        return hostile::attack();
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["launch"] => return launcher::run(),
        ["act", directory, machine, acts] => act(directory, machine, acts, None),
        ["act", directory, machine, acts, step] => {
            step.parse().map_err(Failure::from).and_then(|step| act(directory, machine, acts, Some(step)))
        }
        _ => Err("say `launch` or `act DIRECTORY MACHINE.json ACTS [STEP]`".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hypervisor-test-agent: {why}");
            ExitCode::FAILURE
        }
    }
}

fn act(directory: &str, machine: &str, acts: &str, last: Option<Step>) -> Result<(), Failure> {
    let launcher = Launcher { program: env::current_exe()?, arguments: vec!["launch".into()] };
    let mut config = HypervisorConfig::of_host(PathBuf::from(directory), launcher);
    config.after_step = Arc::new(move |step| {
        if Some(step) == last {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    });
    let machine: Machine = serde_json::from_slice(&fs::read(machine)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let hypervisor = Hypervisor::new(config);
        for one in acts.split(',') {
            take(&hypervisor, &machine, &machine.id, one).await?;
        }
        Ok(())
    })
}

async fn take(hypervisor: &Hypervisor, machine: &Machine, id: &MachineId, act: &str) -> Result<(), Failure> {
    match act {
        "define" => hypervisor.define(machine).await?,
        "launch" => drop(hypervisor.launch(id, Descriptors::new()).await?),
        "kill" => hypervisor.kill(id).await?,
        "forget" => hypervisor.forget(id).await?,
        other => return Err(format!("no act is called {other:?}").into()),
    }
    Ok(())
}
