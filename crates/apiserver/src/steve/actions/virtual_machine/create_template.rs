//! `createTemplate`: one write, a template that says which machine it is made of. Its version, the copies of Secrets and the
//! images of disks are made by its controller, however often the server ends in between.
//!
//! What can be known to go wrong is refused before anything is written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sheaf_planner::virtual_machine_template::from_machine;
use sheaf_resources::kinds::{
    virtual_machine::VirtualMachine,
    virtual_machine_template::made_of::{MADE_OF_ANNOTATION, MadeOf, claims_of, secrets_of},
    virtual_machine_template_version,
};

use super::{HARVESTER, claim, typed};
use crate::{
    request::Verb,
    status::ApiError,
    steve::{
        actions::{ActionCall, Outcome},
        errand::{Errand, JSON},
    },
};

pub(super) async fn create_template(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let name = match call.text("name")? {
        "" => return Err(ApiError::unprocessable("Template name is required")),
        name => name,
    };
    let description = call.text("description")?;
    let with_data = match &call.body["withData"] {
        Value::Null => false,
        Value::Bool(with_data) => *with_data,
        other => return Err(ApiError::unprocessable(format!("withData must be true or false, not {other}"))),
    };
    let vm: VirtualMachine = typed(call.object)?;
    let made_of = MadeOf {
        machine: call.object_name.to_owned(),
        uid: vm.metadata.uid.clone().unwrap_or_default(),
        secrets: secrets_of(&vm),
        claims: with_data.then(|| claims_of(&vm)),
    };
    check(call, name, &vm, &made_of).await?;
    let note = serde_json::to_string(&made_of).map_err(ApiError::internal)?;
    let template = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": name, "annotations": {MADE_OF_ANNOTATION: note}},
        "spec": {"description": description},
    });
    let templates = (HARVESTER, "v1beta1", "virtualmachinetemplates");
    call.errands.ask(&Errand::new(Verb::Create, templates, call.namespace, "").with(JSON, template)).await?;
    Ok(Outcome::Done)
}

/// Whether the version would be let in, as far as that can be said before there is a template.
async fn check(
    call: &ActionCall<'_>,
    name: &str,
    vm: &VirtualMachine,
    made_of: &MadeOf,
) -> Result<(), ApiError> {
    let mut claims = BTreeMap::new();
    for named in made_of.claims.iter().flatten() {
        let found = call.errands.ask(&claim(call, Verb::Get, named)).await.map_err(missing)?;
        if found["status"]["phase"] != "Bound" {
            return Err(ApiError::unprocessable(format!(
                "the claim {named} is not bound: there is no data yet"
            )));
        }
        claims.insert(named.clone(), typed(&found)?);
    }
    // What uid it will have makes no difference.
    let version =
        from_machine::version_of((call.namespace, name, ""), vm, made_of, &claims, &BTreeMap::new());
    let version = version.map_err(ApiError::unprocessable)?;
    for key in &version.spec.key_pair_ids {
        let (namespace, name) = key.split_once('/').unwrap_or((call.namespace, key));
        let keys = (HARVESTER, "v1beta1", "keypairs");
        call.errands.ask(&Errand::new(Verb::Get, keys, namespace, name)).await.map_err(missing)?;
    }
    match virtual_machine_template_version::validate(&json!(version), None).as_slice() {
        [] => Ok(()),
        problems => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(ApiError::unprocessable(problems.join(", ")))
        }
    }
}

/// What the machine names is gone, which is not to say that the machine is.
fn missing(why: ApiError) -> ApiError {
    if why.is_not_found() { ApiError::unprocessable(why.message().to_owned()) } else { why }
}
