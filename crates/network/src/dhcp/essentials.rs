//! What of a guest's message is worth decoding. Pure.
//!
//! A guest puts in a message what it likes, and a decoder of every option there is has
//! more ways to go wrong than a server has use for (the one we use falls over a route
//! with a prefix of more than 32 bits, and gives a whole message up for a host name that
//! is not UTF-8). So only the handful of options that an answer depends on are left in.

/// Op, addresses, names and the four bytes that say that options follow.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const PAD: u8 = 0;
const END: u8 = 255;
/// Requested address, message type, server, largest message, client.
const KEPT: [u8; 5] = [50, 53, 54, 57, 61];

/// The message with the options that matter and no others; none if it is not one.
pub(super) fn essentials(datagram: &[u8]) -> Option<Vec<u8>> {
    let (header, mut options) = datagram.split_at_checked(HEADER)?;
    if !header.ends_with(&COOKIE) {
        return None;
    }
    let mut kept = header.to_vec();
    while let Some((&code, rest)) = options.split_first() {
        options = match code {
            PAD => rest,
            END => break,
            _ => {
                let (&length, rest) = rest.split_first()?;
                let (value, rest) = rest.split_at_checked(usize::from(length))?;
                if KEPT.contains(&code) {
                    kept.extend_from_slice(&[code, length]);
                    kept.extend_from_slice(value);
                }
                rest
            }
        };
    }
    kept.push(END);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER - COOKIE.len()];
        message.extend_from_slice(&COOKIE);
        message.extend_from_slice(options);
        message
    }

    #[test]
    fn only_what_an_answer_depends_on_is_left() {
        let with_a_name = message(&[53, 1, 1, PAD, 12, 2, 0xff, 0xff, 57, 2, 5, 0xdc, END, 9, 9]);
        assert_eq!(essentials(&with_a_name), Some(message(&[53, 1, 1, 57, 2, 5, 0xdc, END])));
    }

    #[test]
    fn a_message_that_ends_too_early_is_none() {
        assert_eq!(essentials(&message(&[53])), None);
        assert_eq!(essentials(&message(&[53, 9, 1])), None);
        assert_eq!(essentials(&message(&[])[1..]), None);
        assert_eq!(essentials(&[]), None);
    }
}
