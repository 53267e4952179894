//! Access credentials: one sort, one source, one way in, and the seed that the way needs.

use super::super::spec::VirtualMachineInstanceSpec;
use crate::field_error::{FieldError, FieldPath};

pub(super) fn validate(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let no_cloud = spec.volumes.iter().any(|volume| volume.cloud_init_no_cloud.is_some());
    let config_drive = spec.volumes.iter().any(|volume| volume.cloud_init_config_drive.is_some());
    for (n, credential) in spec.access_credentials.iter().enumerate() {
        let at = path.child("accessCredentials").index(n);
        let refuse = |why: &str| FieldError::forbidden(&at, why);
        let mut source = None;
        match (&credential.ssh_public_key, &credential.user_password) {
            (Some(keys), None) => {
                source = Some(&keys.source);
                let way = &keys.propagation_method;
                let ways =
                    [way.no_cloud.is_some(), way.config_drive.is_some(), way.qemu_guest_agent.is_some()];
                if ways.iter().filter(|chosen| **chosen).count() != 1 {
                    errors.push(refuse("must have exactly one propagationMethod set"));
                }
                if way.no_cloud.is_some() && !no_cloud {
                    errors.push(refuse(
                        "requires a noCloud volume to exist when the noCloud propagationMethod is in use.",
                    ));
                }
                if way.config_drive.is_some() && !config_drive {
                    errors.push(refuse(
                        "requires a configDrive volume to exist when the configDrive propagationMethod is in use.",
                    ));
                }
                if way.qemu_guest_agent.as_ref().is_some_and(|agent| agent.users.is_empty()) {
                    errors.push(refuse("requires at least one user to be present in the users list"));
                }
            }
            (None, Some(passwords)) => {
                source = Some(&passwords.source);
                if passwords.propagation_method.qemu_guest_agent.is_none() {
                    errors.push(refuse("must have exactly one propagationMethod set"));
                }
            }
            (None, None) | (Some(_), Some(_)) => {
                errors.push(refuse("must have exactly one access credential type set"));
            }
        }
        if let Some(source) = source
            && source.secret.as_ref().is_none_or(|secret| secret.secret_name.is_empty())
        {
            errors.push(refuse("must have exactly one source set"));
        }
    }
    errors
}
