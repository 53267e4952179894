//! What a template may say that it is made of: a machine that its author may read, and disks that they may have.
//!
//! A controller that may do everything makes it so, and with nobody asking again. So it is said once, when the template is
//! made; and what its version still lacks is for that controller alone to say.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::virtual_machine_template::made_of::{MADE_OF_ANNOTATION, MadeOf, TO_COPY_ANNOTATION},
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
        if let Some(claims) = &made_of.claims {
            needed.push(("create", HARVESTER, "virtualmachineimages", ""));
            // Whoever has an image of a disk has all that is on it.
            needed
                .extend(claims.iter().map(|claim| ("update", "", "persistentvolumeclaims", claim.as_str())));
        }
        for (verb, group, resource, name) in needed {
            let asked = Attributes { verb, group, resource, namespace, name, ..Attributes::default() };
            if !self.authorizer.authorize(call.user, &asked).is_allowed() {
                let why = format!(
                    "user {:?} may not make a template of that machine: it takes the right to {verb} {} in the \
                     namespace {namespace:?}",
                    call.user.name,
                    Named { group, resource }
                );
                return Err(ApiError::refused(call.named(), name_of(new), why));
            }
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
