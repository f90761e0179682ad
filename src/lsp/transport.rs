//! Messages over byte streams: a header with a length, then JSON. What is no message is told, and the next one is read.

use lsp_server::Message;
use std::io::{self, BufRead, Read};

/// Longest message that is read.
const LONGEST: usize = 64 << 20;

/// What a stream yields.
pub enum Received {
    /// A message.
    Message(Message),
    /// Bytes of the announced length that are no message, and why.
    Unreadable(String),
    /// The end of the stream, or of what can be made out in it.
    End,
}

/// Reads the next message.
pub fn read(input: &mut impl BufRead) -> Received {
    let length = match length(input) {
        Ok(Some(length)) if length <= LONGEST => length,
        Ok(Some(length)) => {
            // The stream can be followed past it.
            let skipped = io::copy(&mut input.take(length as u64), &mut io::sink());
            let whole = skipped.is_ok_and(|n| n == length as u64);
            let why = format!("a message of {length} bytes; at most {LONGEST} are read");
            return if whole { Received::Unreadable(why) } else { Received::End };
        }
        Ok(None) | Err(_) => return Received::End,
    };
    let mut bytes = Vec::new();
    match input.take(length as u64).read_to_end(&mut bytes) {
        Ok(n) if n == length => {}
        Ok(_) | Err(_) => return Received::End,
    }
    match serde_json::from_slice(&bytes) {
        Ok(message) => Received::Message(message),
        Err(e) => Received::Unreadable(e.to_string()),
    }
}

/// The length that a header announces; none at the end of the stream, or where there is no header.
fn length(input: &mut impl BufRead) -> io::Result<Option<usize>> {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        // A header line is short: a longer one is none.
        if input.take(1 << 12).read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_followed_past_what_is_no_message() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#;
        let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let stream = framed("{") + &framed("\u{1f600}") + &framed(request);
        let mut input = stream.as_bytes();
        assert!(matches!(read(&mut input), Received::Unreadable(_)));
        assert!(matches!(read(&mut input), Received::Unreadable(_)));
        assert!(matches!(read(&mut input), Received::Message(Message::Request(_))));
        assert!(matches!(read(&mut input), Received::End));
    }

    #[test]
    fn what_has_no_length_ends_the_stream() {
        for bytes in [
            &b"\xff\xfe\x00"[..],
            b"\r\n\r\n",
            b"Content-Length: many\r\n\r\n{}",
            b"Content-Length: 18446744073709551615\r\n\r\n{}",
            b"Content-Length: 99999999999999999999999\r\n\r\n{}",
            b"Content-Length: 10\r\n\r\n{}",
        ] {
            assert!(matches!(read(&mut &bytes[..]), Received::End), "{bytes:?}");
        }
    }
}
