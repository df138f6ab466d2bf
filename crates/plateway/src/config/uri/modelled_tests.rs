//! Models as they are written: what each spelling means, each mistake of a file with its line, and
//! the documentation's table against the code.

use std::fs;

use super::*;
use crate::config::uri::{Around, DiskUri};
use testkit::cases::judge;

const DOCUMENTATION: &str = include_str!("../../../../../docs/configuration.md");

fn model_uri(text: &str) -> ModelUri {
    match text.parse() {
        Ok(DiskUri::Instrumented { instrument: Around::Model(model), .. }) => *model,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_name_means_a_model_and_options_change_single_values() {
    for (name, model) in Model::NAMED {
        assert_eq!(model_uri(&format!("model:{name},ram:1MiB")).model(), Ok(model));
    }
    let hdd = Model::named("hdd-10k").unwrap();
    let changed = "model:hdd-10k?channels=4&seed=7&service_us=500&service=exponential,null:1GiB";
    let service = Spread::Exponential;
    let expected = Model { channels: 4, seed: 7, service_us: 500, service, ..hdd };
    assert_eq!(model_uri(changed).model(), Ok(expected));
    // Each word reaches a field of its own.
    for word in &WORDS {
        let (text, seen) = match word.key {
            "service" => ("uniform", 1),
            "seek_us" => ("777", 777),
            _ => ("77", 77),
        };
        let uri = format!("model:hdd-10k?{}={text},null:512", word.key);
        let model = model_uri(&uri).model().unwrap();
        for other in &WORDS {
            let expected = if other.key == word.key { Some(seen) } else { (other.get)(&hdd) };
            assert_eq!((other.get)(&model), expected, "{uri}: {}", other.key);
        }
    }
}

#[test]
fn spreads_stand_in_the_order_in_which_the_reactor_names_them() {
    assert!(SPREADS.iter().enumerate().all(|(place, (_, spread))| *spread as usize == place));
}

#[test]
fn a_file_says_the_same_words_as_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a,b?.toml");
    fs::write(&path, "seek_us = 9_000\nseek_track_us = 1000\nrpm = 0x1c20 # 7200\nseed = 3\n")
        .unwrap();
    let hex = Model { seek_us: 9_000, seek_track_us: 1_000, rpm: 7_200, seed: 3, ..Model::PLAIN };
    let spelled = path.display().to_string().replace(',', "%2C").replace('?', "%3F");
    let uri = model_uri(&format!("model:{spelled},ram:1MiB"));
    assert_eq!(uri.base, Base::File(path.clone()));
    assert_eq!((uri.model(), uri.to_string()), (Ok(hex), spelled.clone()));
    let uri = model_uri(&format!("model:{spelled}?seed=4&service=uniform&service_us=5,ram:1MiB"));
    let service = Spread::Uniform;
    assert_eq!(uri.model(), Ok(Model { seed: 4, service, service_us: 5, ..hex }));
    // Options are judged together with the file.
    let uri = model_uri(&format!("model:{spelled}?seek_us=999,ram:1MiB"));
    let why = uri.model().unwrap_err();
    let words = "expected seek_us, the mean, of at least seek_track_us, the shortest, which is 1000, seen 999";
    assert!(why.ends_with(words), "{why}");
    // It is read when a disk is opened, and joined to where the server is.
    fs::write(&path, "channels = 2").unwrap();
    let relative = model_uri("model:./a%2Cb%3F.toml,ram:1MiB").joined_to(directory.path());
    assert_eq!(relative.model(), Ok(Model { channels: 2, ..Model::PLAIN }));
    assert_eq!(
        model_uri("model:ssd,null:512").joined_to(directory.path()).base,
        Base::Named("ssd")
    );
}

#[test]
fn each_mistake_of_a_file_is_shown_with_its_line_and_what_was_expected() {
    judge(include_str!("../tests/models.txt"), |text| match model_of("m.toml", text) {
        Ok(_) => vec!["a model".to_owned()],
        Err(mistakes) => mistakes.plain_lines(),
    });
}

#[test]
fn what_is_no_file_of_a_model_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let why = |name: &str| {
        let why = read(&at(name)).unwrap_err();
        let rest = why.strip_prefix(&at(name).display().to_string()).expect(&why).to_owned();
        assert!(!rest.contains('\n'), "{rest}");
        rest
    };
    let told = |seen: &str| format!(": expected the file of a model, seen {seen}");
    assert!(why("none.toml").starts_with(&told("No such file")), "{}", why("none.toml"));
    assert_eq!(why(""), told("something else than a regular file"));
    fs::write(at("text"), [0xff, 0xfe]).unwrap();
    assert!(why("text").starts_with(&told("stream did not contain valid UTF-8")));
    fs::write(at("long"), "#".repeat(FILE_MAX as usize + 1)).unwrap();
    assert_eq!(why("long"), told("one of more than 65536 bytes"));
    fs::write(at("long"), "#".repeat(FILE_MAX as usize)).unwrap();
    assert_eq!(read(&at("long")), Ok(Model::PLAIN));
    fs::write(at("two"), "channels = 0\nrpm = -1\n").unwrap();
    let two = why("two");
    assert!(two.starts_with(":1: channels: expected 1 to 256, seen 0; "), "{two}");
    assert!(two.ends_with(":2: rpm: expected 0 to 200000, seen -1"), "{two}");
}

#[test]
fn the_table_of_the_documentation_is_that_of_the_code() {
    let shown = |word: &Word, model: &Model| match (word.get)(model) {
        None => "as reads".to_owned(),
        Some(place) if word.is_spread() => format!("`{}`", SPREADS[place as usize].0),
        Some(number) => number.to_string(),
    };
    let names = Model::NAMED.map(|(name, _)| format!("`{name}`"));
    let head = format!("| word | what | a file | {} |", names.join(" | "));
    let table = DOCUMENTATION.split_once(&head).unwrap_or_else(|| panic!("{head} is missing")).1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), WORDS.len(), "{rows:?}");
    for (row, word) in rows.iter().zip(&WORDS) {
        let models = [Model::PLAIN].into_iter().chain(Model::NAMED.map(|(_, model)| model));
        let mut expected = vec![format!("`{}`", word.key)];
        expected.extend(models.map(|model| shown(word, &model)));
        let seen: Vec<&str> = [0, 2, 3, 4, 5].map(|cell| row[cell]).to_vec();
        assert_eq!(seen, expected);
        let bounds = match word.is_spread() {
            true => SPREADS.map(|(name, _)| format!("`{name}`")).join(", "),
            false if word.range.1 == u64::MAX => "any whole number".to_owned(),
            false => word.expected(),
        };
        assert!(row[1].contains(&bounds), "{}: {bounds} is not in {}", word.key, row[1]);
    }
}
