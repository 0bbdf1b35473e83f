//! Parser for the PDDL that the games use.

const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    Word(&'a str),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum List<'a> {
    Word(&'a str),
    Items(Vec<List<'a>>),
}

/// Reader of tokens, which skips comments (`;`).
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn error(&self, what: &str) -> String {
        let line = 1 + self.text.get(..self.at).unwrap_or_default().matches('\n').count();
        format!("`pddl_problem`, line {line}: {what}")
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b';' => {
                    while bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                b'(' => {
                    self.at += 1;
                    return Some(Token::Open);
                }
                b')' => {
                    self.at += 1;
                    return Some(Token::Close);
                }
                _ => break,
            }
        }
        let start = self.at;
        // Words end at an ASCII byte: the slice is valid UTF-8.
        while bytes
            .get(self.at)
            .is_some_and(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')'))
        {
            self.at += 1;
        }
        Some(Token::Word(&self.text[start..self.at]))
    }

    /// Skips all text up to and including the next `(keyword`.
    pub(super) fn seek(&mut self, keyword: &str) -> Result<(), String> {
        let mut opened = false;
        while let Some(token) = self.next() {
            match token {
                Token::Word(word) if opened && word.eq_ignore_ascii_case(keyword) => return Ok(()),
                token => opened = token == Token::Open,
            }
        }
        Err(self.error(&format!("the text ends before `({keyword}`; the file is cut short or no problem")))
    }

    /// Reads the next fact `(name argument ...)`. Returns false at the end of the list of facts.
    pub(super) fn fact(&mut self, fact: &mut Vec<&'a str>) -> Result<bool, String> {
        fact.clear();
        match self.next() {
            Some(Token::Close) => return Ok(false),
            Some(Token::Open) => {}
            Some(Token::Word(word)) => return Err(self.error(&format!("`{word}` stands outside of a fact"))),
            None => return Err(self.error("the text ends inside the list of facts; the file is cut short")),
        }
        loop {
            match self.next() {
                Some(Token::Word(word)) => fact.push(word),
                Some(Token::Close) => return Ok(true),
                Some(Token::Open) => return Err(self.error("a fact inside a fact")),
                None => return Err(self.error("the text ends inside a fact; the file is cut short")),
            }
        }
    }

    pub(super) fn list(&mut self) -> Result<List<'a>, String> {
        let mut open: Vec<Vec<List<'a>>> = Vec::new();
        loop {
            let mut done = match self.next() {
                Some(Token::Open) if open.len() == MAX_DEPTH => {
                    return Err(self.error(&format!("lists nest deeper than {MAX_DEPTH}")));
                }
                Some(Token::Open) => {
                    open.push(Vec::new());
                    continue;
                }
                Some(Token::Word(word)) => List::Word(word),
                Some(Token::Close) => match open.pop() {
                    Some(items) => List::Items(items),
                    None => return Err(self.error("a `)` without its `(`")),
                },
                None => return Err(self.error("the text ends inside a list; the file is cut short")),
            };
            match open.last_mut() {
                Some(items) => items.push(std::mem::replace(&mut done, List::Word(""))),
                None => return Ok(done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lists_and_comments_are_told_apart() {
        let mut reader = Reader::new("(a (b c) ; (not read)\n d)");
        let word = |text| List::Word(text);
        let expected = List::Items(vec![word("a"), List::Items(vec![word("b"), word("c")]), word("d")]);
        assert_eq!(reader.list(), Ok(expected));
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn facts_come_one_by_one() {
        let mut reader = Reader::new("(define (:init (p x) (q x y)) rest");
        reader.seek(":INIT").unwrap();
        let mut fact = Vec::new();
        assert!(reader.fact(&mut fact).unwrap());
        assert_eq!(fact, ["p", "x"]);
        assert!(reader.fact(&mut fact).unwrap());
        assert_eq!(fact, ["q", "x", "y"]);
        assert!(!reader.fact(&mut fact).unwrap());
    }

    #[test]
    fn what_is_cut_short_or_too_deep_is_said_with_its_line() {
        assert!(Reader::new("(a\n(b").list().unwrap_err().contains("line 2: the text ends"));
        assert!(Reader::new(")").list().unwrap_err().contains("without its"));
        assert!(Reader::new(&"(".repeat(100)).list().unwrap_err().contains("deeper"));
        assert!(Reader::new("(x)").seek(":init").unwrap_err().contains("`(:init`"));
        let mut fact = Vec::new();
        assert!(Reader::new("x").fact(&mut fact).unwrap_err().contains("outside"));
        assert!(Reader::new("(x").fact(&mut fact).unwrap_err().contains("inside a fact"));
        assert!(Reader::new("(x (").fact(&mut fact).unwrap_err().contains("a fact inside"));
        assert!(Reader::new(" ").fact(&mut fact).unwrap_err().contains("list of facts"));
    }
}
