//! Questions about identity and access: posted, answered, never kept.

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenReview},
    authorization::v1::{
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    },
};

use crate::{
    kind::{Kind, Verbs},
    schema::from_k8s_openapi as schema,
};

pub fn kinds() -> Vec<Kind> {
    let authorization = "authorization.k8s.io";
    let authentication = "authentication.k8s.io";
    let question = |mut kind: Kind| {
        kind.verbs = Verbs::CreateOnly;
        kind
    };
    [
        Kind::built_in(
            authorization,
            "v1",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            schema::<SelfSubjectAccessReview>,
        )
        .cluster_scoped(),
        Kind::built_in(
            authorization,
            "v1",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            schema::<SelfSubjectRulesReview>,
        )
        .cluster_scoped(),
        Kind::built_in(
            authorization,
            "v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            schema::<SubjectAccessReview>,
        )
        .cluster_scoped(),
        Kind::built_in(
            authorization,
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            schema::<LocalSubjectAccessReview>,
        ),
        Kind::built_in(authentication, "v1", "TokenReview", "tokenreviews", schema::<TokenReview>)
            .cluster_scoped(),
        Kind::built_in(
            authentication,
            "v1",
            "SelfSubjectReview",
            "selfsubjectreviews",
            schema::<SelfSubjectReview>,
        )
        .cluster_scoped(),
    ]
    .map(question)
    .into()
}
