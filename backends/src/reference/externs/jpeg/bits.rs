//! The bit reader of a scan, and its Huffman decoder.

/// A code whose words have up to 16 bits.
pub(crate) struct HuffmanTable {
    /// Of each length the first word that is too large for it, or 0 if there is none.
    ends: [u32; 17],
    /// What is added to a word of each length to find its value.
    offsets: [i32; 17],
    values: Vec<u8>,
}

impl HuffmanTable {
    /// The canonical code with so many words of each length; `None` if there is none.
    pub fn new(counts: &[u8; 16], values: &[u8]) -> Option<HuffmanTable> {
        let (mut ends, mut offsets) = ([0; 17], [0; 17]);
        let (mut word, mut first) = (0u32, 0i32);
        for length in 1..=16 {
            let count = u32::from(counts[length - 1]);
            offsets[length] = first - word as i32;
            word += count;
            first += count as i32;
            ends[length] = if count > 0 { word } else { 0 };
            if word > 1 << length {
                return None;
            }
            word <<= 1;
        }
        Some(HuffmanTable { ends, offsets, values: values.to_vec() })
    }
}

/// The bits of a scan up to its next marker; behind them are zeros.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u32,
    count: u32,
    /// Bits that are not in the file.
    missing: usize,
}

impl<'a> Bits<'a> {
    pub fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits { bytes, at: 0, held: 0, count: 0, missing: 0 }
    }

    pub fn bit(&mut self) -> u32 {
        if self.count == 0 {
            let byte = match (self.bytes.get(self.at), self.bytes.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(0xff), _) | (None, _) => {
                    self.missing += 8;
                    0
                }
                (Some(&b), _) => {
                    self.at += 1;
                    b
                }
            };
            (self.held, self.count) = (byte.into(), 8);
        }
        self.count -= 1;
        self.held >> self.count & 1
    }

    pub fn bits(&mut self, n: u32) -> u32 {
        (0..n).fold(0, |v, _| v << 1 | self.bit())
    }

    /// A number of `n` bits, whose first one is 0 if it is negative.
    pub fn number(&mut self, n: u32) -> i32 {
        let v = self.bits(n) as i32;
        if n > 0 && v < 1 << (n - 1) { v - (1 << n) + 1 } else { v }
    }

    /// The value of the next word of a code.
    pub fn word(&mut self, table: &HuffmanTable) -> Option<u8> {
        let mut word = 0;
        for length in 1..=16 {
            word = word << 1 | self.bit();
            if word < table.ends[length] {
                let at = word as i32 + table.offsets[length];
                return table.values.get(usize::try_from(at).ok()?).copied();
            }
        }
        None
    }

    /// True if more bits were read than a file that is merely cut short explains.
    pub fn is_exhausted(&self) -> bool {
        self.missing > 64
    }

    /// Goes on behind the next restart marker; false if there is none.
    pub fn restart(&mut self) -> bool {
        (self.count, self.missing) = (0, 0);
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let found = rest.windows(2).position(|w| w[0] == 0xff && !matches!(w[1], 0 | 0xff));
        match found {
            Some(i) if matches!(rest[i + 1], 0xd0..=0xd7) => {
                self.at += i + 2;
                true
            }
            _ => false,
        }
    }

    /// Bytes that were read.
    pub fn consumed(&self) -> usize {
        self.at.min(self.bytes.len())
    }
}
