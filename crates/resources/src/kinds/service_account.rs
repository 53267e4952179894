//! core/v1 ServiceAccount: who a program is.

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;

use super::{age_column, count, name_column};
use crate::kind::{Column, Kind, Subresource};

pub fn kind() -> Kind {
    Kind::of_type::<ServiceAccount>("serviceaccounts")
        .short(&["sa"])
        .with_subresource(Subresource {
            name: "token",
            body: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: &["create"],
        })
        .columns(vec![
            name_column(),
            Column::computed("Secrets", |object, _| json!(count(&object["secrets"]))).integer(),
            age_column(),
        ])
}
