//! Where errors are planted in lines of production code (`block::planted`), so that a test can hold its
//! list of them to the places that there are.
//!
//! In: a folder, and which files of it count. Out: names. Errors: what cannot be read panics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of the places in the Rust sources below a folder, of those files that `counts`.
pub fn places(folder: &Path, counts: &dyn Fn(&Path) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(places(&path, counts));
        } else if path.extension().is_some_and(|it| it == "rs") && counts(&path) {
            let text = fs::read_to_string(&path).expect("a source");
            let after = text.split("planted(\"").skip(1);
            found.extend(after.filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
        }
    }
    found
}
