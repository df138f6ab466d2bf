//! The keys of a login, and what both sides agree on by them.
//!
//! In: text segments, `key=value` each ended by a zero byte. Out: [`Terms`]. The target's answers
//! are computed here ([`Terms::answer`]); what the client offers is in `session.rs`. Errors: a value
//! that is no number where one has to stand. Spec: RFC 7143, 6 and 13.

use anyhow::{Context as _, Result, ensure};

use super::scsi;

/// Data of one PDU that the target takes.
const MAX_RECV: u32 = 262_144;
/// The target's wishes.
const FIRST_BURST: u32 = 8192;
const MAX_BURST: u32 = 1_048_576;
/// An initiator is refused that takes less in a PDU or a burst: the headers of its reads would not
/// fit an outbox.
const LENGTH_MIN: u32 = 4096;
const BLOCK: u32 = scsi::BLOCK as u32;

/// What was agreed on; a new one has the defaults of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    /// A command that writes may have data with it.
    pub(super) immediate: bool,
    /// How much of its data may come unasked for.
    pub(super) first_burst: u32,
    /// How much an R2T, or a sequence of Data-In, is for at most.
    pub(super) max_burst: u32,
    /// Data of one PDU that the other side takes.
    pub(super) max_send: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            immediate: true,
            first_burst: 65_536,
            max_burst: 262_144,
            max_send: 8192,
        }
    }
}

impl Terms {
    /// Takes over what has been agreed on for a key; those that change nothing here are left alone.
    pub(super) fn settle(&mut self, key: &str, value: &str) -> Result<()> {
        let number = || value.parse().with_context(|| format!("{key}={value} is no number"));
        match key {
            "HeaderDigest" => self.header_digest = value == "CRC32C",
            "DataDigest" => self.data_digest = value == "CRC32C",
            "ImmediateData" => self.immediate = value == "Yes",
            "FirstBurstLength" => self.first_burst = number()?,
            "MaxBurstLength" => self.max_burst = number()?,
            "MaxRecvDataSegmentLength" => self.max_send = number()?,
            _ => {}
        }
        Ok(())
    }

    /// What the target says to a key that it was offered, if it has to say anything.
    pub(super) fn answer(&mut self, key: &str, offered: &str) -> Result<Option<String>> {
        let number = || -> Result<u32> {
            offered.parse().with_context(|| format!("{key}={offered} is no number"))
        };
        let answer = match key {
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => return Ok(None),
            "MaxRecvDataSegmentLength" => {
                self.max_send = whole_blocks(number()?)?;
                return Ok(None);
            }
            "MaxBurstLength" => {
                let burst = number()?.min(MAX_BURST);
                self.max_burst = whole_blocks(burst)?;
                return Ok(Some(burst.to_string()));
            }
            "FirstBurstLength" => number()?.min(FIRST_BURST).to_string(),
            "HeaderDigest" | "DataDigest" => {
                let known = offered.split(',').find(|name| ["CRC32C", "None"].contains(name));
                known.unwrap_or("Reject").to_owned()
            }
            "AuthMethod" => "None".to_owned(),
            "InitialR2T" | "DataPDUInOrder" | "DataSequenceInOrder" => "Yes".to_owned(),
            "ImmediateData" | "DefaultTime2Wait" | "DefaultTime2Retain" => offered.to_owned(),
            "MaxConnections" | "MaxOutstandingR2T" => "1".to_owned(),
            "ErrorRecoveryLevel" => "0".to_owned(),
            "IFMarker" | "OFMarker" => "No".to_owned(),
            _ => "NotUnderstood".to_owned(),
        };
        self.settle(key, &answer)?;
        Ok(Some(answer))
    }

    /// What the target declares of itself.
    pub(super) fn declared() -> (String, String) {
        ("MaxRecvDataSegmentLength".to_owned(), MAX_RECV.to_string())
    }
}

/// As many of a length's bytes as are whole blocks: then only the end of a command's data may need
/// padding, and where the data are whole blocks nothing does.
fn whole_blocks(length: u32) -> Result<u32> {
    ensure!(length >= LENGTH_MIN, "{length} bytes in a PDU or a burst are too few");
    Ok(length / BLOCK * BLOCK)
}

/// The pairs of a text segment; what is no pair is passed over.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    text.split(|byte| *byte == 0).filter_map(|part| std::str::from_utf8(part).ok()?.split_once('='))
}

/// A text segment of pairs.
pub(super) fn emit(pairs: &[(String, String)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(key: &str, offered: &str) -> Option<String> {
        Terms::default().answer(key, offered).expect("a value that can be read")
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let pairs = [("A", "1"), ("B", ""), ("C", "x=y")];
        let text = emit(&pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(text, b"A=1\0B=\0C=x=y\0");
        assert!(parse(&text).eq(pairs));
        assert_eq!(parse(b"\0\0torn\0").count(), 0);
    }

    #[test]
    fn each_key_is_answered_by_its_function() {
        let said = |key, offered| answer(key, offered).unwrap_or_default();
        assert_eq!(said("HeaderDigest", "None,CRC32C"), "None");
        assert_eq!(said("DataDigest", "X,CRC32C,None"), "CRC32C");
        assert_eq!(said("InitialR2T", "No"), "Yes");
        assert_eq!(said("ImmediateData", "No"), "No");
        assert_eq!(said("FirstBurstLength", "262144"), "8192");
        assert_eq!(said("FirstBurstLength", "512"), "512");
        assert_eq!(said("MaxBurstLength", "16776192"), "1048576");
        assert_eq!(said("MaxConnections", "8"), "1");
        assert_eq!(said("MaxOutstandingR2T", "16"), "1");
        assert_eq!(said("DefaultTime2Wait", "2"), "2");
        assert_eq!(said("OFMarker", "Yes"), "No");
        assert_eq!(said("X-com.example", "1"), "NotUnderstood");
        assert_eq!(answer("TargetName", "iqn.x"), None);
    }

    #[test]
    fn what_was_answered_holds() {
        let mut terms = Terms::default();
        for (key, offered) in [
            ("HeaderDigest", "CRC32C,None"),
            ("ImmediateData", "No"),
            ("FirstBurstLength", "4096"),
            ("MaxBurstLength", "65537"),
            ("MaxRecvDataSegmentLength", "16384"),
        ] {
            terms.answer(key, offered).expect("known");
        }
        let agreed = Terms {
            header_digest: true,
            data_digest: false,
            immediate: false,
            first_burst: 4096,
            max_burst: 65_536,
            max_send: 16_384,
        };
        assert_eq!(terms, agreed);
    }

    #[test]
    fn lengths_that_are_no_numbers_or_too_small_end_the_login() {
        let mut terms = Terms::default();
        assert!(terms.answer("MaxBurstLength", "much").is_err());
        assert!(terms.answer("MaxRecvDataSegmentLength", "512").is_err());
    }
}
