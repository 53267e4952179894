//! The operators of `sheaf_tests::kube_rs`.

use sheaf_tests::{
    kube_rs::{self, Memory, lamps, reflecting},
    original::Original,
};

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn a_controller_and_its_finalizer_arrive_when_the_server_is_killed_and_comes_back() {
    kube_rs::tell(Original::start(), lamps::every_lamp_is_looked_after);
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn a_reflector_arrives_when_the_server_is_killed_and_comes_back() {
    kube_rs::tell(Original::start(), async |stage| {
        reflecting::the_copy_equals_a_fresh_list(stage, Memory::Forgetful).await;
    });
}
