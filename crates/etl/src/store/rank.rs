//! How well a record fits the words of a person, and where they stand in it. Pure: the index only says which records to
//! look at.

/// How much a word in the title weighs, against one in the text.
const TITLE_WEIGHT: f64 = 5.0;
/// How quickly a word that comes again and again stops to matter, and how much long texts are held back: BM25's own.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// How many words an excerpt has.
const EXCERPT_WORDS: usize = 16;

/// One thing to look for: words that stand next to each other, of which the last may be a beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    words: Vec<String>,
    is_beginning: bool,
}

/// The words of a person: nothing in them is an operator, besides quotes and a star at the end.
pub(super) fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        let is_phrase = at % 2 == 1;
        let parts = if is_phrase { vec![part] } else { part.split_whitespace().collect() };
        for part in parts {
            let words: Vec<String> = words(part).map(|(_, word)| word.to_lowercase()).collect();
            if !words.is_empty() {
                terms.push(Term { words, is_beginning: !is_phrase && part.ends_with('*') });
            }
        }
    }
    terms
}

impl Term {
    /// As the index takes it.
    pub(super) fn expression(&self) -> String {
        format!("\"{}\"{}", self.words.join(" "), if self.is_beginning { "*" } else { "" })
    }

    /// The first words of each place where it stands among `words`.
    fn places<'a>(&'a self, words: &'a [Word<'_>]) -> impl Iterator<Item = usize> + 'a {
        let len = self.words.len();
        words.windows(len).enumerate().filter(|(_, window)| self.fits(window)).map(|(at, _)| at)
    }

    fn fits(&self, window: &[Word<'_>]) -> bool {
        let last = self.words.len() - 1;
        self.words.iter().zip(window).enumerate().all(|(at, (wanted, (_, word)))| {
            if at == last && self.is_beginning { begins(word, wanted) } else { same(word, wanted) }
        })
    }
}

/// What must be known of a record to rank it: how often each term stands in title and text, and their lengths in words.
pub(super) struct Measured {
    times: Vec<(f64, f64)>,
    lengths: (usize, usize),
}

/// Looks for `terms` in a record that has them all.
pub(super) fn measure(terms: &[Term], title: &str, text: &str) -> Measured {
    let (title, text): (Vec<_>, Vec<_>) = (words(title).collect(), words(text).collect());
    let times = terms.iter().map(|term| {
        let (in_title, in_text) = (term.places(&title).count(), term.places(&text).count());
        // The index knows more spellings than we do (accents): it says that the term is there, so it is.
        let in_text = if in_title + in_text == 0 { 1 } else { in_text };
        (in_title as f64, in_text as f64)
    });
    Measured { times: times.collect(), lengths: (title.len(), text.len()) }
}

/// What is the same for all records of one search.
pub(super) struct Ranking {
    terms: Vec<Term>,
    /// How telling each term is: rare ones are.
    telling: Vec<f64>,
    /// How long titles and texts are on average.
    means: (f64, f64),
}

impl Ranking {
    /// `found` says of each term in how many of `records` it stands; `ranked` are those to put in order.
    pub(super) fn new<'a>(
        terms: Vec<Term>,
        found: &[f64],
        records: f64,
        ranked: impl Iterator<Item = &'a Measured>,
    ) -> Self {
        let telling =
            found.iter().map(|found| (1.0 + (records - found).max(0.0) / (found + 0.5)).ln()).collect();
        let (mut title, mut text, mut count) = (0, 0, 0);
        for one in ranked {
            (title, text, count) = (title + one.lengths.0, text + one.lengths.1, count + 1);
        }
        let mean = |sum: usize| (sum as f64 / f64::from(count).max(1.0)).max(1.0);
        Self { terms, telling, means: (mean(title), mean(text)) }
    }

    /// The larger, the better it fits (BM25F: a short title that is all about it counts, however long the text).
    pub(super) fn score(&self, record: &Measured) -> f64 {
        let long = |len: usize, mean: f64| 1.0 - B + B * len as f64 / mean;
        let (title, text) = (long(record.lengths.0, self.means.0), long(record.lengths.1, self.means.1));
        let of = |((in_title, in_text), telling): (&(f64, f64), &f64)| {
            let times = TITLE_WEIGHT * in_title / title + in_text / text;
            telling * times * (K1 + 1.0) / (times + K1)
        };
        record.times.iter().zip(&self.telling).map(of).sum()
    }

    /// Some words of the text (of the title, where the text has none) with what was looked for in brackets.
    pub(super) fn excerpt(&self, title: &str, text: &str) -> String {
        let in_text: Vec<_> = words(text).collect();
        let (whole, words) = match self.best_window(&in_text) {
            None => (title, words(title).collect()),
            Some(_) => (text, in_text),
        };
        let first = self.best_window(&words).unwrap_or(0);
        let end = (first + EXCERPT_WORDS).min(words.len());
        let marks = self.marks(&words);
        let mut excerpt = String::from(if first > 0 { "…" } else { "" });
        let mut at = if first > 0 { words[first].0 } else { 0 };
        for index in first..end {
            let (start, word) = words[index];
            excerpt.push_str(&whole[at..start]);
            at = start + word.len();
            if marks[index] {
                excerpt.extend(["[", word, "]"]);
            } else {
                excerpt.push_str(word);
            }
        }
        excerpt.push_str(if end < words.len() { "…" } else { &whole[at..] });
        excerpt
    }

    /// Which of the words belong to a term.
    fn marks(&self, words: &[Word<'_>]) -> Vec<bool> {
        let mut marks = vec![false; words.len()];
        for term in &self.terms {
            for place in term.places(words) {
                marks[place..place + term.words.len()].fill(true);
            }
        }
        marks
    }

    /// Where an excerpt begins that shows the most different terms; `None` where none stands anywhere.
    fn best_window(&self, words: &[Word<'_>]) -> Option<usize> {
        let places: Vec<Vec<usize>> = self.terms.iter().map(|term| term.places(words).collect()).collect();
        let shown = |first: usize| {
            let inside = |all: &&Vec<usize>| {
                all.iter().any(|place| (first..first + EXCERPT_WORDS - 2).contains(place))
            };
            places.iter().filter(inside).count()
        };
        // Two words before the first hit, so that it does not stand alone.
        let starts = places.iter().flatten().map(|place| place.saturating_sub(2));
        starts.max_by_key(|&first| (shown(first), std::cmp::Reverse(first)))
    }
}

/// A word, and where it begins.
type Word<'a> = (usize, &'a str);

/// The words of a text: letters and digits, as the index sees them.
fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while !is_word(text, at)? {
            at += step(text, at);
        }
        let start = at;
        while is_word(text, at) == Some(true) {
            at += step(text, at);
        }
        Some((start, &text[start..at]))
    })
}

/// Whether the character there belongs to a word; `None` at the end.
fn is_word(text: &str, at: usize) -> Option<bool> {
    let byte = *text.as_bytes().get(at)?;
    if byte.is_ascii() {
        Some(byte.is_ascii_alphanumeric())
    } else {
        text[at..].chars().next().map(char::is_alphanumeric)
    }
}

/// How long the character there is.
fn step(text: &str, at: usize) -> usize {
    if text.as_bytes()[at].is_ascii() { 1 } else { text[at..].chars().next().map_or(1, char::len_utf8) }
}

/// Whether a word is `wanted`, which is in small letters.
fn same(word: &str, wanted: &str) -> bool {
    if word.len() == wanted.len() && word.eq_ignore_ascii_case(wanted) {
        return true;
    }
    !wanted.is_ascii() && word.to_lowercase() == wanted
}

fn begins(word: &str, wanted: &str) -> bool {
    word.get(..wanted.len()).is_some_and(|beginning| same(beginning, wanted))
        || (!wanted.is_ascii() && word.to_lowercase().starts_with(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expressions(text: &str) -> Vec<String> {
        terms(text).iter().map(Term::expression).collect()
    }

    fn ranking(text: &str, found: &[f64]) -> Ranking {
        let typical =
            measure(&terms(text), "A usual title", "A text of some ten words, more or less as usual.");
        Ranking::new(terms(text), found, 1000.0, [typical].iter())
    }

    fn score(ranking: &Ranking, title: &str, text: &str) -> f64 {
        ranking.score(&measure(&ranking.terms, title, text))
    }

    #[test]
    fn words_of_a_person_are_never_operators() {
        assert_eq!(expressions("sql Injection"), [r#""sql""#, r#""injection""#]);
        assert_eq!(
            expressions(r#"a "b c" inject* NEAR( log4j-core"#),
            [r#""a""#, r#""b c""#, r#""inject"*"#, r#""near""#, r#""log4j core""#]
        );
        assert_eq!(expressions("- * \" ( \u{e000}"), Vec::<String>::new());
    }

    #[test]
    fn the_title_weighs_more_and_so_does_a_short_text() {
        let ranking = ranking("door", &[10.0]);
        let score = |title, text| score(&ranking, title, text);
        let in_title = score("An open door", "Somebody walks in.");
        let twice = score("Open", "A door is a door, and somebody walks in.");
        let once = score("Open", "A door is open, and somebody walks in.");
        let long =
            score("Open", "A door is open, and somebody walks in, and out again, and in, and out, and in.");
        assert!(in_title > twice && twice > once && once > long, "{in_title} {twice} {once} {long}");
        let long_text = "Many more words of a long text. ".repeat(30);
        let all_about_it = score("Door", &long_text);
        let among_others = score("A door among all the other things of a house", "Short.");
        assert!(all_about_it > among_others, "{all_about_it} {among_others}");
    }

    #[test]
    fn a_rare_word_tells_more_than_a_common_one() {
        let ranking = ranking("door the", &[5.0, 900.0]);
        let rare = score(&ranking, "", "door door door the");
        let common = score(&ranking, "", "door the the the");
        assert!(rare > common, "{rare} {common}");
    }

    #[test]
    fn phrases_and_beginnings_are_found_where_they_stand_and_in_any_case_of_letters() {
        let places = |term: &str, text: &str| {
            let words: Vec<_> = words(text).collect();
            terms(term)[0].places(&words).collect::<Vec<_>>()
        };
        assert_eq!(places("\"open door\"", "Open windows, an OPEN door"), [3]);
        assert_eq!(places("inject*", "Injection by injected input"), [0, 2]);
        assert_eq!(places("über", "ÜBER alles"), [0]);
        assert_eq!(places("é*", "Éa"), [0]);
    }

    #[test]
    fn an_excerpt_shows_the_words_in_brackets_where_most_of_them_stand() {
        let ranking = ranking("door open", &[5.0, 5.0]);
        let far = "word ".repeat(30);
        assert_eq!(
            ranking.excerpt("title", &format!("A door. {far}then the door was open, they say")),
            "…then the [door] was [open], they say"
        );
        assert_eq!(ranking.excerpt("The open door", "nothing"), "The [open] [door]");
        assert_eq!(ranking.excerpt("A title", "A text"), "A title");
        assert_eq!(ranking.excerpt("", ""), "");
    }
}
