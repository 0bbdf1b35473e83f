//! Lines with a limit on their length.

use std::io::{self, BufRead, ErrorKind, Read as _};

/// Maximum number of bytes in a line; real lines are trajectories of up to 50 MB.
pub const LONGEST_LINE: u64 = 256 << 20;

/// Iterator of [`lines`].
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    longest: u64,
    ended: bool,
}

/// Iterates over lines like [`BufRead::lines`]. A line of more than [`LONGEST_LINE`] bytes, which
/// could exhaust memory, is an error ([`ErrorKind::FileTooLarge`]) and ends the iteration.
pub fn lines<R: BufRead>(reader: R) -> Lines<R> {
    Lines { reader, longest: LONGEST_LINE, ended: false }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        if self.ended {
            return None;
        }
        let mut line = Vec::new();
        if let Err(error) = self.reader.by_ref().take(self.longest + 2).read_until(b'\n', &mut line) {
            return Some(Err(error));
        }
        if line.is_empty() {
            return None;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if line.len() as u64 > self.longest {
            self.ended = true;
            let reason = format!("the line has more than {} bytes, the most that is read", self.longest);
            return Some(Err(io::Error::new(ErrorKind::FileTooLarge, reason)));
        }
        Some(String::from_utf8(line).map_err(|error| io::Error::new(ErrorKind::InvalidData, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_standard_library() {
        for text in ["", "\n", "a", "a\n", "a\r\nb", "\r\n\n\r", "a\n\nb\r\r\n", "é\n\u{feff}x"] {
            let plain: Vec<String> = text.as_bytes().lines().map(Result::unwrap).collect();
            assert_eq!(lines(text.as_bytes()).map(Result::unwrap).collect::<Vec<_>>(), plain, "{text:?}");
        }
        let error = lines(&b"a\n\xff\nb"[..]).nth(1).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_line_that_is_too_long_ends_the_reading() {
        let read = |text: &[u8]| -> Vec<Result<String, String>> {
            let lines = Lines { reader: text, longest: 4, ended: false };
            lines.map(|line| line.map_err(|error| error.to_string())).collect()
        };
        assert_eq!(read(b"1234\r\n1234\n1234"), vec![Ok("1234".to_owned()); 3]);
        for text in [&b"1\n12345\n1"[..], b"1\n12345", b"1\n123456789\n1", b"1\n12345\r\n1"] {
            let found = read(text);
            assert!(found.len() == 2 && found[0].is_ok(), "{found:?}");
            assert!(found[1].as_ref().unwrap_err().contains("more than 4 bytes"), "{found:?}");
        }
        let mut endless = lines(io::BufReader::new(io::repeat(b'x')));
        endless.longest = 1 << 20;
        assert_eq!(endless.next().unwrap().unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(endless.next().is_none());
    }
}
