//! A case of `cases.toml` with a matrix is many: one for each combination of its axes' entries.
//!
//! Pure: TOML tables in and out. An axis is a list of entries, each a name and a table of words. In
//! every text of the case `{axis}` becomes the entry's name and `{axis.word}` its word; a text that
//! is nothing but such a word becomes the word's value, which may be a number. The axis that the
//! case's name has first turns slowest. Errors: an axis that the name does not have (its cases would
//! share a name), a word that an entry does not have.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use toml::{Table, Value};

/// The cases that a table stands for.
pub(super) fn expand(mut case: Table) -> Result<Vec<Table>> {
    let Some(matrix) = case.remove("matrix") else {
        return Ok(vec![case]);
    };
    let matrix: BTreeMap<String, Vec<(String, Table)>> =
        matrix.try_into().context("a matrix has axes, each a list of [name, { words }]")?;
    let name = case.get("name").and_then(Value::as_str).context("a case has a name")?.to_owned();
    let mut axes = Vec::new();
    for (axis, entries) in matrix {
        let Some(place) = name.find(&format!("{{{axis}}}")) else {
            bail!("the name {name} lacks {{{axis}}}");
        };
        ensure!(!entries.is_empty(), "{name}: the axis {axis} has no entries");
        axes.push((place, axis, entries));
    }
    axes.sort_by_key(|(place, _, _)| *place);
    let mut cases = vec![case];
    for (_, axis, entries) in &axes {
        let mut wider = Vec::new();
        for case in &cases {
            for (entry, words) in entries {
                let filled = fill(&Value::Table(case.clone()), axis, entry, words)?;
                let Value::Table(filled) = filled else { bail!("a table stays one") };
                wider.push(filled);
            }
        }
        cases = wider;
    }
    Ok(cases)
}

/// A value with one axis's words put in.
fn fill(value: &Value, axis: &str, entry: &str, words: &Table) -> Result<Value> {
    Ok(match value {
        Value::String(text) => fill_text(text, axis, entry, words)?,
        Value::Array(values) => {
            let filled = values.iter().map(|value| fill(value, axis, entry, words));
            Value::Array(filled.collect::<Result<_>>()?)
        }
        Value::Table(table) => {
            let filled = table
                .iter()
                .map(|(key, value)| anyhow::Ok((key.clone(), fill(value, axis, entry, words)?)));
            Value::Table(filled.collect::<Result<_>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, axis: &str, entry: &str, words: &Table) -> Result<Value> {
    let begin = format!("{{{axis}.");
    let mut filled = text.replace(&format!("{{{axis}}}"), entry);
    while let Some(at) = filled.find(&begin) {
        let rest = &filled[at + begin.len()..];
        let end = rest.find('}').with_context(|| format!("no }} after {begin} in {text:?}"))?;
        let word = &rest[..end];
        let value = words.get(word);
        let value = value.with_context(|| format!("{axis} {entry:?} has no word {word:?}"))?;
        let whole = at..at + begin.len() + end + 1;
        if whole == (0..filled.len()) {
            return Ok(value.clone());
        }
        let number = || value.as_integer().map(|number| number.to_string());
        let shown = value.as_str().map(str::to_owned).or_else(number);
        let shown = shown.with_context(|| format!("{axis}.{word} is no text and no number"))?;
        filled.replace_range(whole, &shown);
    }
    Ok(Value::String(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>> {
        let cases = expand(toml::from_str(text)?)?;
        Ok(cases.iter().map(|case| case["name"].as_str().unwrap_or("?").to_owned()).collect())
    }

    #[test]
    fn a_case_without_a_matrix_is_itself() {
        assert_eq!(names("name = 'a'").unwrap(), ["a"]);
    }

    #[test]
    fn the_axis_that_the_name_has_first_turns_slowest() {
        let text = "name = '{z}-{a}'\nmatrix.a = [['1', {}], ['2', {}]]\nmatrix.z = [['x', {}], ['y', {}]]";
        assert_eq!(names(text).unwrap(), ["x-1", "x-2", "y-1", "y-2"]);
    }

    #[test]
    fn words_stand_in_texts_at_any_depth_and_a_text_that_is_one_word_takes_its_type() {
        let text = "name = '{a}'\nlist = [{ mtu = '{a.mtu}', words = '--{a.mtu} {a.x}' }]\n\
                    matrix.a = [['n', { mtu = 1500, x = 'y' }]]";
        let case = &expand(toml::from_str(text).unwrap()).unwrap()[0];
        assert_eq!(case["list"][0]["mtu"].as_integer(), Some(1500));
        assert_eq!(case["list"][0]["words"].as_str(), Some("--1500 y"));
    }

    #[test]
    fn a_missing_word_and_an_axis_without_a_place_in_the_name_are_errors() {
        let missing = names("name = '{a}'\nx = '{a.no}'\nmatrix.a = [['n', {}]]").unwrap_err();
        assert_eq!(missing.to_string(), "a \"n\" has no word \"no\"");
        let nameless = names("name = 'b'\nmatrix.a = [['n', {}]]").unwrap_err();
        assert_eq!(nameless.to_string(), "the name b lacks {a}");
    }
}
