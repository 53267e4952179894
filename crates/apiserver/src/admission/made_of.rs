//! What a template may say that it is made of: a machine and Secrets that its author may read, and disks
//! that they may have.
//!
//! A controller that may do everything makes it so, and with nobody asking again. So it is said once, when the template is
//! made; and what its version still lacks is for that controller alone to say. Clones are asked about likewise.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        virtual_machine::VirtualMachine,
        virtual_machine_template::made_of::{MADE_OF_ANNOTATION, MadeOf, TO_COPY_ANNOTATION, secrets_of},
    },
    rbac::Attributes,
};

use super::{machines, speaks_for_the_cluster};
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::{ApiError, Named},
};

const HARVESTER: &str = "harvesterhci.io";

impl ApiServer {
    pub(super) async fn admit_made_of(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let said = &new["metadata"]["annotations"][MADE_OF_ANNOTATION];
        if said.is_null()
            || old.is_some_and(|old| old["metadata"]["annotations"][MADE_OF_ANNOTATION] == *said)
        {
            return Ok(());
        }
        let at = at(MADE_OF_ANNOTATION);
        if old.is_some() {
            return Err(invalid(
                call,
                new,
                FieldError::forbidden(&at, "is said when a template is made, and not later"),
            ));
        }
        let text = said.as_str().unwrap_or_default();
        let made_of: MadeOf = serde_json::from_str(text)
            .map_err(|why| invalid(call, new, FieldError::invalid(&at, text, why.to_string())))?;
        let namespace = call.request.namespace.as_str();
        let mut needed = vec![
            ("get", machines::GROUP, machines::MACHINES, made_of.machine.as_str()),
            ("create", HARVESTER, "virtualmachinetemplateversions", ""),
        ];
        // Whoever has machines made with a Secret has what is in it.
        needed.extend(made_of.secrets.iter().map(|secret| ("get", "", "secrets", secret.as_str())));
        if let Some(claims) = &made_of.claims {
            needed.push(("create", HARVESTER, "virtualmachineimages", ""));
            // Whoever has an image of a disk has all that is on it.
            needed
                .extend(claims.iter().map(|claim| ("update", "", "persistentvolumeclaims", claim.as_str())));
        }
        for needed in needed {
            self.check_takes(call, new, "make a template of that machine", needed)?;
        }
        // It may have been made a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let machines = Resource::new(machines::GROUP, machines::MACHINES);
        let found =
            self.cache.get(&machines, &place(namespace, &made_of.machine)).map(|found| found.to_value());
        match found {
            Some(vm) if vm["metadata"]["uid"] == made_of.uid.as_str() => Ok(()),
            _ => {
                let why = format!("there is no machine {} with that uid", made_of.machine);
                Err(invalid(call, new, FieldError::invalid(&at, text, why)))
            }
        }
    }

    /// A clone has the Secrets of its original, so whoever asks for one may read them, as the machine itself.
    pub(super) async fn admit_clone(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        let machine = new["spec"]["source"]["name"].as_str().unwrap_or_default();
        // What makes no sense at all is refused, in its own words, by its kind.
        if machine.is_empty() {
            return Ok(());
        }
        let what = "clone that machine";
        self.check_takes(call, new, what, ("get", machines::GROUP, machines::MACHINES, machine))?;
        self.reach(Freshness::Latest).await?;
        let found = self.find(machines::GROUP, machines::MACHINES, &call.request.namespace, machine);
        let vm = found.and_then(|vm| serde_json::from_value::<VirtualMachine>(vm).ok());
        for secret in vm.iter().flat_map(secrets_of) {
            self.check_takes(call, new, what, ("get", "", "secrets", &secret))?;
        }
        Ok(())
    }

    /// Refuses what takes a right that whoever asks has not got: a verb, the group and the resource, and the name.
    pub(super) fn check_takes(
        &self,
        call: &Call<'_>,
        new: &Value,
        what: &str,
        (verb, group, resource, name): (&str, &str, &str, &str),
    ) -> Result<(), ApiError> {
        let namespace = call.request.namespace.as_str();
        let asked = Attributes { verb, group, resource, namespace, name, ..Attributes::default() };
        if self.authorizer.authorize(call.user, &asked).is_allowed() {
            return Ok(());
        }
        let which = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let why = format!(
            "user {:?} may not {what}: it takes the right to {verb} {}{which} in the namespace {namespace:?}",
            call.user.name,
            Named { group, resource },
        );
        Err(ApiError::refused(call.named(), name_of(new), why))
    }
}

pub(super) fn keep_to_copy(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let said = &new["metadata"]["annotations"][TO_COPY_ANNOTATION];
    let before = old.map(|old| &old["metadata"]["annotations"][TO_COPY_ANNOTATION]);
    if said.is_null() || before == Some(said) || speaks_for_the_cluster(call.user) {
        return Ok(());
    }
    let why = "is said by the controller of templates alone";
    Err(invalid(call, new, FieldError::forbidden(&at(TO_COPY_ANNOTATION), why)))
}

fn at(annotation: &str) -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(annotation)
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn invalid(call: &Call<'_>, new: &Value, error: FieldError) -> ApiError {
    let kind = &call.served.kind;
    ApiError::invalid(&kind.group, &kind.kind, name_of(new), &[error])
}
