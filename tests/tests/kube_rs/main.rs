//! Operators written with kube-rs against the real server, which is killed under them. The stories are in
//! `sheaf_tests::kube_rs`; they are told of the original too, see `tests/tests/peer`.

use sheaf_tests::{
    kube_rs::{self, Memory, lamps, reflecting},
    node::Node,
};

#[test]
fn a_controller_and_its_finalizer_arrive_when_the_server_is_killed_and_comes_back() {
    kube_rs::tell(Node::start(), lamps::every_lamp_is_looked_after);
}

#[test]
fn a_reflector_goes_on_where_it_was_when_the_server_is_killed_and_comes_back() {
    kube_rs::tell(Node::start(), async |stage| {
        reflecting::the_copy_equals_a_fresh_list(stage, Memory::Lasting).await;
    });
}
