//! coordination.k8s.io/v1 Lease: who holds what, until when.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::{age_column, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
};

pub fn kind() -> Kind {
    Kind::of_type::<Lease>("leases")
        .columns(vec![
            name_column(),
            Column::computed("Holder", |lease, _| lease["spec"]["holderIdentity"].clone()),
            age_column(),
        ])
        .behaving(Behaviour {
            validate,
            create_on_update: true,
            unconditional_update: false,
            ..Behaviour::PLAIN
        })
}

fn validate(lease: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = lease["spec"]["leaseDurationSeconds"].as_i64()
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            &FieldPath::new("spec").child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = lease["spec"]["leaseTransitions"].as_i64()
        && count < 0
    {
        errors.push(FieldError::invalid(
            &FieldPath::new("spec").child("leaseTransitions"),
            count,
            "must be greater than or equal to 0",
        ));
    }
    errors
}
