//! Questions about identity and access: posted, answered, never kept.

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenReview},
    authorization::v1::{
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    },
};

use crate::kind::{Kind, Verbs};

pub fn kinds() -> Vec<Kind> {
    let question = |mut kind: Kind| {
        kind.verbs = Verbs::CreateOnly;
        kind
    };
    [
        Kind::of_type::<SelfSubjectAccessReview>("selfsubjectaccessreviews").cluster_scoped(),
        Kind::of_type::<SelfSubjectRulesReview>("selfsubjectrulesreviews").cluster_scoped(),
        Kind::of_type::<SubjectAccessReview>("subjectaccessreviews").cluster_scoped(),
        Kind::of_type::<LocalSubjectAccessReview>("localsubjectaccessreviews"),
        Kind::of_type::<TokenReview>("tokenreviews").cluster_scoped(),
        Kind::of_type::<SelfSubjectReview>("selfsubjectreviews").cluster_scoped(),
    ]
    .map(question)
    .into()
}
