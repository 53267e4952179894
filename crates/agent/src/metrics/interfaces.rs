//! What the kernel counts of network interfaces, all of them in one read.
//!
//! Those of the network namespace of the calling thread, which is where taps are made.

use std::{collections::BTreeMap, fs, io};

use super::sample::{NicNumbers, Traffic};

const FILE: &str = "/proc/thread-self/net/dev";

/// One interface as the host sees it: what it received came out of the guest behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceNumbers {
    pub received: Traffic,
    pub transmitted: Traffic,
}

impl InterfaceNumbers {
    /// The same from the other end: what a tap receives is what the guest sent.
    pub fn seen_by_guest(&self, name: &str) -> NicNumbers {
        NicNumbers { name: name.to_owned(), received: self.transmitted, transmitted: self.received }
    }
}

pub fn read() -> io::Result<BTreeMap<String, InterfaceNumbers>> {
    Ok(parse(&fs::read_to_string(FILE)?))
}

fn parse(text: &str) -> BTreeMap<String, InterfaceNumbers> {
    text.lines().filter_map(line).collect()
}

/// `name: bytes packets errs drop fifo frame compressed multicast`, and eight more for the other direction.
fn line(line: &str) -> Option<(String, InterfaceNumbers)> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|text| text.parse().ok()).collect();
    let traffic = |from: usize| {
        let [bytes, packets, errors, dropped] = numbers.get(from..from + 4)?.try_into().ok()?;
        Some(Traffic { bytes, packets, errors, dropped })
    };
    let counted = InterfaceNumbers { received: traffic(0)?, transmitted: traffic(8)? };
    Some((name.trim().to_owned(), counted))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLDEN: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 21967630293 4922721    0    0    0     0          0         0 21967630293 4922721    0    0    0     0       0          0
sht1a2b3c4d5e:    1500      11    1    2    0     0          0         0    70000      90    3    4    0     0       0          0
";

    #[test]
    fn each_interface_is_read_with_both_its_directions() {
        let read = parse(GOLDEN);
        assert_eq!(read.keys().collect::<Vec<_>>(), ["lo", "sht1a2b3c4d5e"]);
        let tap = read["sht1a2b3c4d5e"];
        assert_eq!(tap.received, Traffic { bytes: 1500, packets: 11, errors: 1, dropped: 2 });
        assert_eq!(tap.transmitted, Traffic { bytes: 70_000, packets: 90, errors: 3, dropped: 4 });
    }

    #[test]
    fn what_a_tap_receives_is_what_its_guest_sent() {
        let tap = parse(GOLDEN)["sht1a2b3c4d5e"].seen_by_guest("default");
        assert_eq!((tap.name.as_str(), tap.transmitted.bytes, tap.received.bytes), ("default", 1500, 70_000));
    }

    #[test]
    fn this_host_has_a_loopback() {
        assert!(read().unwrap().contains_key("lo"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-z0-9: \n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
