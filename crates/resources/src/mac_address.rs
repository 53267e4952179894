//! Hardware addresses of network interfaces, as text in the one form that is compared:
//! six lower-case pairs with colons.

/// A unicast address that no manufacturer has, from six bytes of chance.
pub fn locally_administered(mut random: [u8; 6]) -> String {
    random[0] = (random[0] | 0x02) & 0xfe;
    random.map(|byte| format!("{byte:02x}")).join(":")
}

/// The address in its one form; `None` when it is not one. Dashes are read too.
pub fn normalised(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let bytes: Vec<u8> = parts
        .iter()
        .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    if parts.len() != 6 || bytes.len() != 6 {
        return None;
    }
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

/// Addressed to one interface, not to a group of them.
pub fn is_unicast(normalised: &str) -> bool {
    u8::from_str_radix(normalised.get(..2).unwrap_or_default(), 16).is_ok_and(|first| first & 1 == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_drawn_address_is_unicast_and_nobody_elses(random: [u8; 6]) {
            let mac = locally_administered(random);
            let first = u8::from_str_radix(&mac[..2], 16).unwrap();
            prop_assert_eq!(first & 0b11, 0b10);
            prop_assert!(is_unicast(&mac));
            let same = normalised(&mac);
            prop_assert_eq!(same.as_deref(), Some(mac.as_str()));
        }
    }

    #[test]
    fn every_spelling_becomes_one() {
        assert_eq!(normalised("DE-AD-be-ef-00-01").as_deref(), Some("de:ad:be:ef:00:01"));
        for wrong in [
            "",
            "de:ad:be:ef:00",
            "de:ad:be:ef:00:1",
            "de:ad:be:ef:00:zz",
            "de:ad:be:ef:00:01:02",
            "+1:00:00:00:00:00",
        ] {
            assert_eq!(normalised(wrong), None, "{wrong}");
        }
    }
}
