//! The page over several papers: how many of the findings of each came to which word, and what was said of
//! those that were judged. It leads to the page of each paper, which is beside it as NAME.result.html.
//!
//! In come result files of papers; verdicts are judged anew. Errors: what was expected and seen of a file.

use std::fmt::Write as _;

use lab::papers::{Answer, PaperKept, Said};
use serde_json::Value;

use crate::html;
use crate::words::escaped;

/// The words of verdicts, in the order of the page.
const WORDS: [&str; 8] = [
    "confirmed",
    "refuted",
    "no difference shown",
    "undecided",
    "analogue only",
    "not built",
    "cannot be tested here",
    "not rerun yet",
];

pub(crate) fn page(all: &[Value]) -> Result<String, String> {
    let kept: Result<Vec<PaperKept>, String> = all.iter().map(PaperKept::read).collect();
    let judged: Vec<(PaperKept, Vec<Said>)> = kept?
        .into_iter()
        .map(|kept| {
            let said = kept.judge();
            (kept, said)
        })
        .collect();
    let quick = match judged.iter().any(|(kept, _)| kept.is_quick) {
        true => {
            "<p class=\"about\">Quick runs: the primary comparisons alone, in short windows.</p>\n"
        }
        false => "",
    };
    let header = format!("<header>\n<h1>Papers, rerun</h1>\n{quick}</header>");
    let body = counts(&judged) + &judged.iter().map(of_paper).collect::<String>();
    Ok(html::document("Papers, rerun", &header, &body))
}

/// A row each paper: how many of its findings came to which word.
fn counts(judged: &[(PaperKept, Vec<Said>)]) -> String {
    let head: String = WORDS.iter().map(|word| format!("<th>{word}</th>")).collect();
    let mut rows = String::new();
    let mut sums = [0; WORDS.len()];
    for (kept, said) in judged {
        let counts = WORDS.map(|word| said.iter().filter(|one| one.answer.word() == word).count());
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let _ = writeln!(rows, "<tr><td>{}</td>{}</tr>", link(kept), numbers(said.len(), &counts));
    }
    let _ = writeln!(rows, "<tr><th>all</th>{}</tr>", numbers(sums.iter().sum(), &sums));
    format!(
        "<section><h2>Findings</h2>\n<div class=\"scroll\"><table><thead><tr><th>paper</th><th>findings</th>{head}</tr>\
         </thead><tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

fn numbers(all: usize, counts: &[usize]) -> String {
    let mut cells = format!("<td>{all}</td>");
    for count in counts {
        let told = if *count == 0 { "-".to_owned() } else { count.to_string() };
        let _ = write!(cells, "<td>{told}</td>");
    }
    cells
}

fn link(kept: &PaperKept) -> String {
    let (name, title) = (kept.study.name, escaped(&kept.study.paper.title));
    format!("<a href=\"{name}.result.html\">{name}</a><br>{title}")
}

/// What was said of a paper's findings that were judged; nothing of one of which none was.
fn of_paper((kept, said): &(PaperKept, Vec<Said>)) -> String {
    let name = kept.study.name;
    let mut rows = String::new();
    for (finding, said) in kept.study.paper.findings.iter().zip(said) {
        if matches!(said.answer, Answer::NotRerunYet { .. } | Answer::NotBuilt { .. }) {
            continue;
        }
        let ours = said.ours.map_or("-".to_owned(), |ours| ours.to_string());
        let modelled = if said.is_modelled { "<br><b>modelled</b>" } else { "" };
        let size = said.size.map_or("-".to_owned(), |size| size.to_string());
        let class = if said.answer == Answer::Refuted { "failed" } else { "said" };
        let _ = writeln!(
            rows,
            "<tr><td><a href=\"{name}.result.html#finding-{id}\">{id}</a><br>{claim}</td><td>{ours}{modelled}</td>\
             <td class=\"{class}\">{answer}</td><td>{size}</td></tr>",
            id = escaped(&finding.id),
            claim = escaped(&finding.claim()),
            ours = escaped(&ours),
            answer = escaped(&said.answer.to_string()),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<section class=\"findings\"><h2>{}</h2>\n<table><thead><tr><th>finding</th><th>here</th><th>direction</th>\
         <th>size</th></tr></thead><tbody>\n{rows}</tbody></table></section>\n",
        escaped(&kept.study.paper.title)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_over_all_counts_each_word_and_leads_to_each_page() {
        let names = ["rocha", "technomages", "landowski", "goncalves", "sarkar"];
        let all: Vec<Value> = names
            .iter()
            .map(|name| {
                json!({ "schema_version": 1, "paper": name, "quick": true, "not_run": [
                    { "plan": "rocha-micro-disk", "because": "no <disk>", "cause": "machine" },
                ]})
            })
            .collect();
        let page = page(&all).expect("result files");
        for name in names {
            assert!(page.contains(&format!("<a href=\"{name}.result.html\">{name}</a>")), "{name}");
        }
        let sum = page.lines().find(|line| line.starts_with("<tr><th>all</th>")).expect("a sum");
        // Headers are exact, and confirmed without a run.
        assert!(
            sum.starts_with("<tr><th>all</th><td>109</td><td>1</td><td>-</td><td>-</td>"),
            "{sum}"
        );
        assert!(page.contains("rocha.result.html#finding-rand-read-uncached"), "it was judged");
        assert!(page.contains("cannot be tested here, because no &lt;disk&gt;"), "{page}");
        assert!(!page.contains("#finding-zfs-vs-raw") && page.contains("Quick runs"), "{page}");
        let known: Vec<&str> = WORDS.to_vec();
        let said = all.iter().flat_map(|one| PaperKept::read(one).expect("a paper").judge());
        assert!(said.into_iter().all(|one| known.contains(&one.answer.word())));
    }
}
