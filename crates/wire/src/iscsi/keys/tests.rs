//! Texts as peers send them, texts nobody should send, and the values in them.

use super::values::{Base64, Hex, binary, boolean, list, number, range, yes_no};
use super::*;

fn pairs(text: &[u8]) -> Vec<(&str, &str)> {
    Pairs::new(text).map(|pair| pair.unwrap()).map(|pair| (pair.key, pair.value)).collect()
}

/// The error at the end of a text, after which there must be nothing.
fn refusal(text: &[u8]) -> String {
    let mut pairs = Pairs::new(text);
    let error = pairs.by_ref().find_map(Result::err).expect("an error");
    assert_eq!(pairs.next(), None, "nothing follows an error");
    error.to_string()
}

#[test]
fn pairs_one_after_the_other() {
    // What open-iscsi says first.
    let text = b"InitiatorName=iqn.2001-04.com.example:host\0SessionType=Normal\0\
                 HeaderDigest=None\0AuthMethod=CHAP,None\0InitiatorAlias=\0";
    let expected = [
        ("InitiatorName", "iqn.2001-04.com.example:host"),
        ("SessionType", "Normal"),
        ("HeaderDigest", "None"),
        ("AuthMethod", "CHAP,None"),
        ("InitiatorAlias", ""),
    ];
    assert_eq!(pairs(text), expected);
    let mut written = Vec::new();
    for (key, value) in expected {
        push(&mut written, key, value);
    }
    assert_eq!(written, text);
}

#[test]
fn an_empty_text_has_no_pairs() {
    assert_eq!(pairs(b""), []);
    assert_eq!(pairs(b"\0\0\0"), []);
}

#[test]
fn needless_nuls_mean_nothing() {
    assert_eq!(pairs(b"\0A=1\0\0\0B=2\0\0"), [("A", "1"), ("B", "2")]);
}

#[test]
fn a_value_may_hold_equals_signs_and_more_than_ascii() {
    assert_eq!(pairs(b"CHAP_C=0bAQ==\0"), [("CHAP_C", "0bAQ==")]);
    assert_eq!(pairs("TargetAlias=Stra\u{df}e 1\0".as_bytes()), [("TargetAlias", "Stra\u{df}e 1")]);
}

#[test]
fn a_text_without_its_last_nul_is_cut_off() {
    assert_eq!(
        refusal(b"A=1\0B=2"),
        "value at byte 7: expected a NUL behind every pair, seen 3 (0x3)"
    );
    assert!(refusal(b"A").starts_with("value at byte 1:"));
}

#[test]
fn keys_that_cannot_be() {
    assert_eq!(
        refusal(b"A=1\0MaxConnections\0"),
        "key at byte 4: expected a '=' behind the key, seen 14 (0xe)"
    );
    assert_eq!(refusal(b"=1\0"), "key at byte 0: expected a key before the '=', seen 0 (0x0)");
    assert_eq!(
        refusal(b"A=1\0A B=1\0"),
        "key at byte 5: expected letters, digits, and . - + @ _, seen 32 (0x20)"
    );
    assert!(refusal(b"\xffA=1\0").starts_with("key at byte 0:"));
    assert!(refusal(b"A\n=1\0").starts_with("key at byte 1:"));
    let key = |length: usize| [&vec![b'K'; length][..], b"=1\0"].concat();
    assert_eq!(pairs(&key(63)).len(), 1);
    assert_eq!(refusal(&key(64)), "key at byte 0: expected at most 63, seen 64 (0x40)");
}

#[test]
fn keys_of_vendors_are_keys() {
    let text = b"X-com.example.do_it=1\0X#ours=2\0iSCSIProtocolLevel=1\0";
    assert_eq!(pairs(text).len(), 3);
}

#[test]
fn values_are_utf8() {
    assert_eq!(refusal(b"Key=ab\xff\0"), "value at byte 6: expected UTF-8, seen 255 (0xff)");
    assert_eq!(refusal(b"Key=\xc3\0"), "value at byte 4: expected UTF-8, seen 195 (0xc3)");
}

#[test]
fn items_of_values_have_a_length() {
    let text = |value: &str| format!("K={value}\0").into_bytes();
    let a = |length: usize| "a".repeat(length);
    assert_eq!(pairs(&text(&a(255))).len(), 1);
    assert_eq!(refusal(&text(&a(256))), "value at byte 2: expected at most 255, seen 256 (0x100)");
    // A list is as long as its items let it be.
    assert_eq!(pairs(&text(&format!("{},{}", a(255), a(255)))).len(), 1);
    assert_eq!(
        refusal(&text(&format!("{},{}", a(255), a(256)))),
        "value at byte 258: expected at most 255, seen 256 (0x100)"
    );
    for prefix in ["0x", "0X", "0b", "0B"] {
        assert_eq!(pairs(&text(&format!("{prefix}{}", a(2048)))).len(), 1);
        assert_eq!(
            refusal(&text(&format!("{prefix}{}", a(2049)))),
            "value at byte 2: expected at most 2050, seen 2051 (0x803)"
        );
    }
}

#[test]
fn pairs_are_shown_on_one_line() {
    let shown = |text: &[u8]| Pairs::new(text).next().unwrap().unwrap().to_string();
    assert_eq!(shown(b"MaxConnections=1\0"), "MaxConnections=1");
    assert_eq!(shown(b"A=b\nc\x1b\0"), "A=b\\nc\\u{1b}");
}

#[test]
#[should_panic(expected = "a NUL within TargetAlias=a\0b")]
fn a_nul_within_a_value_is_our_mistake() {
    push(&mut Vec::new(), "TargetAlias", "a\0b");
}

#[test]
fn known_keys_by_name() {
    assert_eq!(Key::ALL.len(), 34);
    for &key in Key::ALL {
        assert_eq!(Key::from_name(key.name()), Some(key));
        assert!(check_key(key.name().as_bytes(), 0).is_ok());
        assert_eq!(key.to_string(), key.name());
    }
    assert_eq!(Key::from_name("DataPDUInOrder"), Some(Key::DataPduInOrder));
    assert_eq!(Key::from_name("iSCSIProtocolLevel"), Some(Key::IscsiProtocolLevel));
    assert_eq!(Key::from_name("maxconnections"), None, "names are case-sensitive");
    assert_eq!(Key::from_name("X-com.example.do_it"), None);
}

#[test]
fn numbers_in_both_radixes() {
    for (text, value) in [
        ("0", 0),
        ("8192", 8192),
        ("18446744073709551615", u64::MAX),
        ("0x0", 0),
        ("0x2000", 8192),
        ("0XfFfF", 65535),
        ("0x00000000000000000001", 1),
        ("0xffffffffffffffff", u64::MAX),
    ] {
        assert_eq!(number(text), Ok(value), "{text}");
    }
    for (text, offset) in [
        ("", 0),
        ("0x", 2),
        ("08192", 0),
        ("00", 0),
        ("-1", 0),
        ("+1", 0),
        ("1 ", 1),
        ("0x+1", 2),
        ("12a", 2),
        ("0x1g", 3),
        ("0b11", 1),
        ("18446744073709551616", 0),
        ("0x10000000000000000", 2),
        ("\u{663}", 0),
    ] {
        let error = number(text).unwrap_err();
        assert_eq!((error.field, error.offset), ("value", offset), "{text}: {error}");
    }
}

#[test]
fn ranges_do_not_go_backwards() {
    assert_eq!(range("512~16777215"), Ok(512..=16_777_215));
    assert_eq!(range("0x10~16"), Ok(16..=16));
    assert_eq!(
        range("16~15").unwrap_err().to_string(),
        "value at byte 3: expected at least 16, seen 15 (0xf)"
    );
    let offset = |text| range(text).unwrap_err().offset;
    assert_eq!(offset("16"), 0);
    assert_eq!(offset("a~1"), 0);
    assert_eq!(offset("10~"), 3);
    assert_eq!(offset("10~2x"), 4);
    assert_eq!(offset("1~2~3"), 3);
}

#[test]
fn booleans_are_spelled_as_the_standard_spells_them() {
    for value in [true, false] {
        assert_eq!(boolean(yes_no(value)), Ok(value));
    }
    for text in ["yes", "NO", "1", "", "Yes "] {
        assert!(boolean(text).is_err(), "{text}");
    }
    assert_eq!((yes_no(true), yes_no(false)), ("Yes", "No"));
}

#[test]
fn lists_are_items_between_commas() {
    assert_eq!(list("CRC32C,None").collect::<Vec<_>>(), ["CRC32C", "None"]);
    assert_eq!(list("None").collect::<Vec<_>>(), ["None"]);
    assert_eq!(list("a,,").collect::<Vec<_>>(), ["a", "", ""]);
}

#[test]
fn hexadecimal_values() {
    assert_eq!(binary("0x27bC"), Ok(vec![0x27, 0xbc]));
    assert_eq!(binary("0X00"), Ok(vec![0]));
    assert_eq!(binary("0x123"), Ok(vec![0x01, 0x23]), "an odd digit is a byte of its own");
    assert_eq!(Hex(&[0x27, 0xbc, 0]).to_string(), "0x27bc00");
    assert_eq!(
        binary("0x12g4").unwrap_err().to_string(),
        "value at byte 4: expected a hexadecimal digit, seen 103 (0x67)"
    );
    assert_eq!(binary("0x").unwrap_err().offset, 2);
}

#[test]
fn base64_values() {
    // The vectors of RFC 4648.
    for (plain, text) in [
        ("f", "0bZg=="),
        ("fo", "0bZm8="),
        ("foo", "0bZm9v"),
        ("foob", "0bZm9vYg=="),
        ("fooba", "0bZm9vYmE="),
        ("foobar", "0bZm9vYmFy"),
    ] {
        assert_eq!(binary(text).as_deref(), Ok(plain.as_bytes()));
        assert_eq!(Base64(plain.as_bytes()).to_string(), text);
        assert_eq!(binary(text.trim_end_matches('=')).as_deref(), Ok(plain.as_bytes()));
    }
    assert_eq!(binary("0B+/+/"), Ok(vec![0xfb, 0xff, 0xbf]));
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(binary(&Base64(&all).to_string()), Ok(all));
}

#[test]
fn base64_that_makes_no_bytes() {
    for (text, words) in [
        ("0b", "a digit"),
        ("0b==", "a digit"),
        ("0bZ", "as many"),
        ("0bZg=", "as many"),
        ("0bZg===", "as many"),
        ("0bZm9v====", "as many"),
        ("0bZm9vYg=a", "a base64 digit"),
        ("0bZm-v", "a base64 digit"),
        ("0bZh==", "no bits"),
        ("0bZm9", "no bits"),
    ] {
        let error = binary(text).unwrap_err();
        assert!(error.to_string().contains(words), "{text}: {error}");
        assert!(error.offset >= 2 && error.offset < text.len().max(3), "{text}: {error}");
    }
}

#[test]
fn binary_values_are_at_most_1024_bytes() {
    let bytes = vec![0x5a; 1025];
    for encode in [|bytes: &[u8]| Hex(bytes).to_string(), |bytes: &[u8]| Base64(bytes).to_string()]
    {
        assert_eq!(binary(&encode(&bytes[..1024])).as_deref(), Ok(&bytes[..1024]));
        assert_eq!(
            binary(&encode(&bytes)).unwrap_err().to_string(),
            "value at byte 2: expected at most 1024, seen 1025 (0x401)"
        );
    }
    assert!(encoded_fits(&Hex(&bytes[..1024]).to_string()));
    assert!(encoded_fits(&Base64(&bytes[..1024]).to_string()));
}

fn encoded_fits(value: &str) -> bool {
    value.len() <= BINARY_TEXT_MAX && check_value(value.as_bytes(), 0).is_ok()
}

#[test]
fn a_value_without_prefix_is_not_binary() {
    for text in ["", "0", "1234", "x12", "Zg=="] {
        assert_eq!(binary(text).unwrap_err().offset, 0, "{text}");
        assert!(!values::is_binary(text));
    }
    assert!(values::is_binary("0x") && values::is_binary("0B1"));
}
