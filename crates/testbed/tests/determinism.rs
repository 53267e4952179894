//! The same seed, the same world: the promise everything simulated rests on.

use sheaf_testbed::Simulation;

const STEPS: usize = 80;

fn trace(seed: u64) -> Vec<String> {
    Simulation { seed, steps: STEPS }.run()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    (1..=3).for_each(runs_the_same_twice);
}

#[test]
#[ignore = "takes long; `make soak` runs it"]
fn soak_two_thousand_seeds_each_give_the_same_trace_twice() {
    // A soak that goes on for hours runs this again and again, each time with other seeds.
    let round = std::env::var("SHEAF_SOAK_ROUND").map_or(0, |round| round.parse().expect("a number"));
    let first: u64 = 1000 + 2000 * round;
    (first..first + 2000).for_each(runs_the_same_twice);
}

fn runs_the_same_twice(seed: u64) {
    let (first, second) = (trace(seed), trace(seed));
    assert!(first.len() > 500, "seed {seed}: only {} lines, so little was tried", first.len());
    for (at, (one, other)) in first.iter().zip(&second).enumerate() {
        assert_eq!(one, other, "seed {seed}, line {at}");
    }
    assert_eq!(first.len(), second.len(), "seed {seed}");
}

#[test]
fn another_seed_gives_another_trace() {
    assert_ne!(trace(1), trace(2));
}
