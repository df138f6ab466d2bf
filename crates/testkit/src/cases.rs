//! Tables of what is said in which case: text files that are read beside the rule that they hold.
//!
//! A case is a good text of which lines are replaced, or one of its own; what is said of it stands
//! below, set in. A test that judges a table fails with all cases of which other things are said.

/// A good text with lines replaced by what stands behind `@` and their number and below, or a text of
/// its own behind `@alone`.
pub fn text_of(good: &str, case: &str) -> String {
    if let Some(alone) = case.strip_prefix("@alone\n") {
        return alone.to_owned();
    }
    let mut lines: Vec<String> = good.lines().chain([""]).map(str::to_owned).collect();
    let mut at = 0;
    for line in case.lines() {
        match line.strip_prefix('@') {
            Some(start) => {
                let (number, text) = start.split_once(' ').unwrap_or((start, ""));
                at = number.parse::<usize>().expect("the number of a line") - 1;
                text.clone_into(&mut lines[at]);
            }
            None => lines[at] += &format!("\n{line}"),
        }
    }
    lines.join("\n")
}

/// Judges a table of cases: what `said` says of each must be the lines below it, which are set in.
pub fn judge(table: &str, said: impl Fn(&str) -> Vec<String>) {
    let (mut rule, mut wrong) = ("", Vec::new());
    for part in table.split("\n\n").skip_while(|part| !part.starts_with("## ")) {
        if part.starts_with("## ") {
            rule = part;
            continue;
        }
        let (case, expected) = part.split_once("\n    ").unwrap_or((part, ""));
        let said = said(case).join("\n    ");
        if said != expected.trim_end() {
            wrong.push(format!("{rule}\n\n{case}\n    {said}"));
        }
    }
    assert!(wrong.is_empty(), "other things are said:\n\n{}", wrong.join("\n\n"));
    assert!(rule.starts_with("## "), "no case was judged");
}
