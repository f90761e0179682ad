//! Answers a prompt with a language model: `cargo run --release --example chat -- MODEL.gguf "What is the capital of France?"`.
//!
//! `--plan FILE` keeps what the optimiser found: the first time it is written, from then on the answer begins in the time of reading weights.
//! `--tokens N` is the longest answer, `--temperature T --seed N` draw tokens in place of the likeliest ones, `--threads N` how many cores work.
//! `--rounded` rounds the rows of products to bytes, as llama.cpp does: the answer may be another one, and comes sooner.
//! Prints the answer, and behind it on standard error how many tokens a second were read and written, and the share of the bandwidth of reading
//! memory, measured in the same run, at which the weights were read.

mod tokens;

use mlc_rewrite::ndarray::{ArrayD, IxDyn};
use mlc_rewrite::{Binding, Device, Metadata, Model, Optimizer, Outputs, Reader, Session};
use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use tokens::Tokens;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the command line asks for.
struct Asked {
    path: String,
    prompt: String,
    plan: Option<PathBuf>,
    tokens: usize,
    temperature: f64,
    seed: u64,
    threads: usize,
    rounded: bool,
}

fn asked() -> Result<Asked, Failure> {
    let mut given = Asked {
        path: String::new(),
        prompt: String::new(),
        plan: None,
        tokens: 128,
        temperature: 0.0,
        seed: 0,
        threads: 1,
        rounded: false,
    };
    let mut places = vec![];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--plan" => given.plan = Some(value()?.into()),
            "--tokens" => given.tokens = value()?.parse()?,
            "--temperature" => given.temperature = value()?.parse()?,
            "--seed" => given.seed = value()?.parse()?,
            "--rounded" => given.rounded = true,
            "--threads" => given.threads = value()?.parse()?,
            _ => places.push(arg),
        }
    }
    let [path, prompt] =
        <[String; 2]>::try_from(places).map_err(|_| "give MODEL.gguf and a prompt")?;
    (given.path, given.prompt) = (path, prompt);
    Ok(given)
}

/// A prompt as the model was trained to see one.
fn dressed(model: &Model, prompt: &str) -> String {
    match model.metadata("tokenizer.chat_template") {
        Some(Metadata::Text(t)) if t.contains("<|im_start|>") => {
            format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n")
        }
        _ => prompt.to_string(),
    }
}

/// What a session has seen so far.
struct Conversation<'s> {
    stream: Binding<'s>,
    seen: usize,
}

impl Conversation<'_> {
    /// Nothing: keys and values stay where they are computed.
    fn new(session: &Session) -> Result<Conversation<'_>, Failure> {
        let mut stream = session.bind();
        for (_, past) in stream.feed_back_appended() {
            let input = session.inputs().iter().find(|i| i.name() == past);
            let extents = input.map(|i| i.shape()).unwrap_or_default();
            let rest = extents.iter().skip(1).map(|e| e.unwrap_or(0));
            let shape: Vec<usize> = std::iter::once(1).chain(rest).collect();
            stream.set(&past, ArrayD::<f32>::zeros(IxDyn(&shape)))?;
        }
        Ok(Conversation { stream, seen: 0 })
    }

    /// What the model says behind these tokens.
    fn read(&mut self, ids: &[u32]) -> Result<Outputs, Failure> {
        let row = |v: Vec<i64>| ArrayD::from_shape_vec(IxDyn(&[1, v.len()]), v);
        let all = self.seen + ids.len();
        let outputs = self.stream.run([
            ("input_ids", row(ids.iter().map(|i| i64::from(*i)).collect())?),
            ("attention_mask", row(vec![1; all])?),
            ("position_ids", row((self.seen as i64..all as i64).collect())?),
        ])?;
        self.seen = all;
        Ok(outputs)
    }
}

/// The likeliest token, or one that is drawn.
fn chosen(outputs: &Outputs, temperature: f64, state: &mut u64) -> Result<u32, Failure> {
    let logits = outputs.array::<f32>("logits")?;
    let logits = logits.as_slice().ok_or("logits lie one after the other")?;
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
    if temperature <= 0.0 {
        return Ok(logits.iter().position(|v| *v == largest).unwrap_or(0) as u32);
    }
    let weight = |v: &f32| (f64::from(v - largest) / temperature).exp();
    // SplitMix64.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
    let mut rest = share * logits.iter().map(weight).sum::<f64>();
    let hit = |v: &f32| {
        rest -= weight(v);
        rest <= 0.0
    };
    Ok(logits.iter().position(hit).unwrap_or(0) as u32)
}

/// Bytes a second that cores read from memory, the best of several times.
fn bandwidth(threads: usize) -> f64 {
    let words = vec![1u64; 32 << 20];
    let part = words.len().div_ceil(threads.max(1));
    let once = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks(part) {
                scope.spawn(move || {
                    black_box(part.iter().fold(0u64, |a, b| a.wrapping_add(*b)));
                });
            }
        });
        (words.len() * 8) as f64 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| once()).fold(0.0, f64::max)
}

/// The session that was kept, or one of the model optimised.
fn session(asked: &Asked, model: &Model) -> Result<Session, Failure> {
    if let Some(plan) = asked.plan.as_ref().filter(|plan| plan.exists()) {
        return Ok(Session::load(plan, &Device::cpu().threads(asked.threads))?);
    }
    // A prompt once, then token by token.
    let optimizer = Optimizer::new().threads(asked.threads).extents("batch", 1..=1);
    let optimizer = optimizer.extents("seq", 1..=64).extents("past", 0..=1024);
    let session = optimizer.optimize(model)?.session()?;
    if let Some(plan) = &asked.plan {
        session.save(plan)?;
    }
    Ok(session)
}

fn main() -> Result<(), Failure> {
    let asked = asked()?;
    let reader = Reader::new().option("last", true);
    let reader = if asked.rounded { reader.option("rounded", true) } else { reader };
    let model = reader.read(&asked.path)?;
    let tokens = Tokens::of(&model)?;
    let begun = Instant::now();
    let session = session(&asked, &model)?;
    let ready = begun.elapsed().as_secs_f64();
    let prompt = tokens.of_text(&dressed(&model, &asked.prompt));
    let end = model.metadata("tokenizer.ggml.eos_token_id");
    let mut conversation = Conversation::new(&session)?;
    let start = Instant::now();
    let mut outputs = conversation.read(&prompt)?;
    let prefill = start.elapsed().as_secs_f64();
    let (mut count, mut state) = (0, asked.seed);
    let start = Instant::now();
    while count < asked.tokens {
        let token = chosen(&outputs, asked.temperature, &mut state)?;
        if end == Some(&Metadata::Int(token.into())) {
            break;
        }
        count += 1;
        let mut shown = std::io::stdout();
        shown.write_all(&tokens.bytes(token))?;
        shown.flush()?;
        outputs = conversation.read(&[token])?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!();
    let decoded = count as f64 / seconds;
    let weights = std::fs::metadata(&asked.path)?.len() as f64;
    eprintln!(
        "ready in {ready:.2} s; {} tokens read at {:.1} a second, {} written at {decoded:.1} a second: {:.0} % of the bandwidth of reading memory",
        prompt.len(),
        prompt.len() as f64 / prefill,
        count,
        100.0 * decoded * weights / bandwidth(asked.threads)
    );
    Ok(())
}
