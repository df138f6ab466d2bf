//! iSCSI texts: keys and values as login and text PDUs carry them, every value read in each of the
//! ways that values are; and the names of initiators and targets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::one_line;
use wire::iscsi::IscsiName;
use wire::iscsi::keys::values::{self, Base64, Hex};
use wire::iscsi::keys::{self, Key, Pairs};

fuzz_target!(|text: &[u8]| {
    let mut written = Vec::new();
    let mut pairs = Vec::new();
    for pair in Pairs::new(text) {
        match pair {
            Ok(pair) => {
                one_line(&pair);
                assert!((1..=keys::KEY_MAX).contains(&pair.key.len()));
                if let Some(key) = Key::from_name(pair.key) {
                    assert_eq!(key.name(), pair.key);
                }
                value(pair.value);
                keys::push(&mut written, pair.key, pair.value);
                pairs.push(pair);
            }
            Err(error) => {
                one_line(&error);
                assert!(error.offset <= text.len(), "{error}");
            }
        }
    }
    let again: Result<Vec<_>, _> = Pairs::new(&written).collect();
    assert_eq!(again, Ok(pairs), "reads what it wrote");
});

fn value(value: &str) {
    let inside = |offset: usize| assert!(offset <= value.len(), "{offset} in {value:?}");
    match values::number(value) {
        Ok(number) => {
            assert_eq!(values::number(&number.to_string()), Ok(number));
            assert_eq!(values::number(&format!("{number:#x}")), Ok(number));
        }
        Err(error) => inside(error.offset),
    }
    match values::range(value) {
        Ok(range) => assert!(range.start() <= range.end()),
        Err(error) => inside(error.offset),
    }
    if let Ok(boolean) = values::boolean(value) {
        assert_eq!(values::yes_no(boolean), value);
    }
    match values::binary(value) {
        Ok(bytes) => {
            assert!((1..=keys::BINARY_MAX).contains(&bytes.len()));
            assert_eq!(values::binary(&Hex(&bytes).to_string()).as_ref(), Ok(&bytes));
            assert_eq!(values::binary(&Base64(&bytes).to_string()).as_ref(), Ok(&bytes));
        }
        Err(error) => inside(error.offset),
    }
    let items: Vec<_> = values::list(value).collect();
    assert_eq!(items.join(","), value);
    match IscsiName::new(value) {
        Ok(name) => {
            assert!(name.as_str().len() <= IscsiName::LENGTH_MAX);
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        Err(error) => one_line(&error),
    }
}
