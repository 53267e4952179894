//! What has changed in a machine's template since its instance began, and whether that comes to the instance while it runs.
//!
//! What can change is [`sheaf_resources::kinds::virtual_machine_instance::live_update`]; here is what a running instance is
//! compared with.

use sheaf_resources::{
    kinds::{
        virtual_machine::{VirtualMachine, instance::instance_with_absent},
        virtual_machine_instance::{
            GENERATION_ANNOTATION, VirtualMachineInstance,
            live_update::{self, LiveUpdate, Running},
        },
    },
    quantity,
};

/// How many fields are named of all that need a restart.
const MOST_NAMED: usize = 6;

/// What the instance should be by now; none for one that goes, or that was made from the template as it is.
pub fn live_update(vm: &VirtualMachine, instance: &VirtualMachineInstance) -> Option<LiveUpdate> {
    let is_going = instance.metadata.deletion_timestamp.is_some() || instance.status.phase.is_final();
    if is_going || generation_of(instance) == vm.metadata.generation {
        return None;
    }
    let mut fresh = instance_with_absent(vm, &mut |_| {})?.spec;
    let running = &instance.spec;
    // What was drawn or asked for at its start is not a change of the template.
    fresh.start_strategy.clone_from(&running.start_strategy);
    fresh.termination_grace_period_seconds = running.termination_grace_period_seconds;
    // Nor is what its namespace gave it, which the template does not say.
    let (resources, given) = (&mut fresh.domain.resources, &running.domain.resources);
    for (amounts, given) in
        [(&mut resources.requests, &given.requests), (&mut resources.limits, &given.limits)]
    {
        for (name, amount) in given {
            amounts.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
    for interface in &mut fresh.domain.devices.interfaces {
        let same = running.domain.devices.interfaces.iter().find(|other| other.name == interface.name);
        let mut settled =
            vm.spec.template.iter().flat_map(|template| &template.spec.domain.devices.interfaces);
        let settled = settled.any(|other| other.name == interface.name && !other.mac_address.is_empty());
        if let Some(same) = same.filter(|_| !settled) {
            interface.mac_address.clone_from(&same.mac_address);
        }
    }
    let ephemeral = instance.ephemeral_volumes();
    let at_boot = instance.status.memory.as_ref().and_then(|memory| memory.guest_at_boot.as_ref());
    let known = Running {
        ephemeral: ephemeral.iter().map(String::as_str).collect(),
        memory_at_boot: at_boot.and_then(|memory| quantity::value(&memory.0)),
    };
    Some(live_update::live_update(running, &fresh, &known))
}

/// What is told of a machine that is not what its template says until it is started anew; none where nothing is.
pub fn why_restart(vm: &VirtualMachine, instance: &VirtualMachineInstance) -> Option<String> {
    let needs = live_update(vm, instance)?.needs_restart;
    let (sentences, fields): (Vec<String>, Vec<String>) =
        needs.into_iter().partition(|why| why.contains(' '));
    let mut told = sentences;
    if !fields.is_empty() {
        let rest = fields.len().saturating_sub(MOST_NAMED);
        let mut named = fields[..fields.len() - rest].join(", ");
        if rest > 0 {
            named = format!("{named} and {rest} more");
        }
        told.push(format!("a non-live-updatable field was changed in the template spec: {named}"));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// The generation of the machine that an instance was made from.
pub fn generation_of(instance: &VirtualMachineInstance) -> Option<i64> {
    instance.metadata.annotations.as_ref()?.get(GENERATION_ANNOTATION)?.parse().ok()
}
