//! The original, asked what Sheaf is asked: what the programs on its own libraries find to be so of Sheaf must be so of
//! it, or they would hold Sheaf to something of their own making.
//!
//! kube-apiserver runs alone, without the controllers that its makers have in another program; what needs some is asked while
//! Sheaf's run on it. Where a story does not hold of both servers, how they differ is said beside it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod client_go;
mod controllers;
mod kube_rs;
mod python_client;

use std::sync::OnceLock;

use sheaf_tests::{definitions, original::Original, patience::until};

/// One for all stories that leave it running, with Sheaf's kinds.
fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let original = Original::start();
        define_our_kinds(&original);
        original
    })
}

fn define_our_kinds(original: &Original) {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut connection = original.admin().connect(original);
    let definitions = definitions::of_our_kinds();
    let refused: Vec<_> = definitions
        .iter()
        .map(|definition| connection.post(DEFINITIONS, definition))
        .filter(|made| made.code != 201)
        .map(|refusal| refusal.refusal().2)
        .collect();
    assert_eq!(refused, Vec::<String>::new());
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        until(format!("{name} is served"), || {
            let found = connection.get(&format!("{DEFINITIONS}/{name}")).object();
            let conditions = found["status"]["conditions"].as_array()?.clone();
            conditions
                .iter()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
                .then_some(())
        });
    }
}
