//! Small files of weights, written by the tests: the same numbers as GGUF and as a folder of safetensors.

use std::path::Path;

/// A tensor of a small model: its name in GGUF, its name in transformers, and its extents.
pub type Named = (String, String, Vec<usize>);

/// The extents of the small model.
pub const LAYERS: usize = 2;
pub const WIDTH: usize = 32;
pub const INNER: usize = 64;
pub const COUNT: usize = 4;
pub const GROUPS: usize = 2;
pub const SIZE: usize = 8;
pub const WORDS: usize = 40;

/// All tensors of a decoder, with tied embeddings.
pub fn tensors() -> Vec<Named> {
    let (heads, shared) = (COUNT * SIZE, GROUPS * SIZE);
    let mut all = vec![
        ("token_embd.weight".into(), "model.embed_tokens.weight".into(), vec![WORDS, WIDTH]),
        ("output_norm.weight".into(), "model.norm.weight".into(), vec![WIDTH]),
    ];
    for i in 0..LAYERS {
        for (gguf, other, shape) in [
            ("attn_norm", "input_layernorm", vec![WIDTH]),
            ("attn_q", "self_attn.q_proj", vec![heads, WIDTH]),
            ("attn_k", "self_attn.k_proj", vec![shared, WIDTH]),
            ("attn_v", "self_attn.v_proj", vec![shared, WIDTH]),
            ("attn_output", "self_attn.o_proj", vec![WIDTH, heads]),
            ("ffn_norm", "post_attention_layernorm", vec![WIDTH]),
            ("ffn_gate", "mlp.gate_proj", vec![INNER, WIDTH]),
            ("ffn_up", "mlp.up_proj", vec![INNER, WIDTH]),
            ("ffn_down", "mlp.down_proj", vec![WIDTH, INNER]),
        ] {
            let names =
                (format!("blk.{i}.{gguf}.weight"), format!("model.layers.{i}.{other}.weight"));
            all.push((names.0, names.1, shape));
        }
    }
    all
}

/// Numbers that are sixteenths, so that four bits and a scale hold them: they depend on the name alone.
pub fn numbers(name: &str, shape: &[usize]) -> Vec<f32> {
    let mut state = name.bytes().fold(17u32, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 28) as u8) / 16.0 - 0.5
    };
    (0..shape.iter().product()).map(|_| next()).collect()
}

/// Rows of heads as ggml has them: the halves of each head interleaved.
pub fn interleaved(w: &[f32], heads: usize, width: usize) -> Vec<f32> {
    let rows = w.len() / width;
    let size = rows / heads;
    let row =
        |h: usize, i: usize| h * size + if i.is_multiple_of(2) { i / 2 } else { size / 2 + i / 2 };
    let order = (0..heads).flat_map(|h| (0..size).map(move |i| row(h, i)));
    order.flat_map(|r| w[r * width..(r + 1) * width].to_vec()).collect()
}

/// Blocks of 4 bits with a scale of a sixteenth and a least number of -0.5.
pub fn q4_1(w: &[f32]) -> Vec<u8> {
    let code = |v: f32| ((v + 0.5) * 16.0).round() as u8;
    let block = |b: &[f32]| {
        let mut out = vec![0x00, 0x2c, 0x00, 0xb8];
        out.extend((0..16).map(|i| code(b[i]) | code(b[i + 16]) << 4));
        out
    };
    w.chunks(32).flat_map(block).collect()
}

/// A GGUF file of keys and tensors.
#[derive(Clone, Default)]
pub struct Gguf {
    pub keys: Vec<(String, u32, Vec<u8>)>,
    /// Name, extents, type, bytes.
    pub tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

impl Gguf {
    pub fn text(mut self, key: &str, value: &str) -> Gguf {
        self.keys.push((key.into(), 8, text(value)));
        self
    }

    pub fn int(mut self, key: &str, value: usize) -> Gguf {
        self.keys.push((key.into(), 4, (value as u32).to_le_bytes().into()));
        self
    }

    pub fn float(mut self, key: &str, value: f32) -> Gguf {
        self.keys.push((key.into(), 6, value.to_le_bytes().into()));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.keys {
            out.extend(text(key));
            out.extend(kind.to_le_bytes());
            out.extend(value);
        }
        let mut offset = 0usize;
        for (name, shape, kind, data) in &self.tensors {
            out.extend(text(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|d| out.extend((*d as u64).to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += data.len().next_multiple_of(32);
        }
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(data);
        }
        out
    }
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

/// The small decoder as GGUF; matrices are in blocks if `blocks`.
pub fn decoder(blocks: bool) -> Gguf {
    let mut out = Gguf::default()
        .text("general.architecture", "llama")
        .int("llama.block_count", LAYERS)
        .int("llama.embedding_length", WIDTH)
        .int("llama.feed_forward_length", INNER)
        .int("llama.attention.head_count", COUNT)
        .int("llama.attention.head_count_kv", GROUPS)
        .float("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .float("llama.rope.freq_base", 10000.0);
    for (name, _, shape) in tensors() {
        let mut w = numbers(&name, &shape);
        match name.rsplit('.').nth(1) {
            Some("attn_q") => w = interleaved(&w, COUNT, WIDTH),
            Some("attn_k") => w = interleaved(&w, GROUPS, WIDTH),
            _ => {}
        }
        let plain = || w.iter().flat_map(|v| v.to_le_bytes()).collect();
        let (kind, data) = if blocks && shape.len() == 2 { (3, q4_1(&w)) } else { (0, plain()) };
        out.tensors.push((name, shape, kind, data));
    }
    out
}

/// The same as transformers saves it.
pub fn decoder_folder(folder: &Path) {
    let config = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": {LAYERS}, "hidden_size": {WIDTH}, "intermediate_size": {INNER},
            "num_attention_heads": {COUNT}, "num_key_value_heads": {GROUPS}, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null}}"#
    );
    std::fs::write(folder.join("config.json"), config).unwrap();
    let (mut header, mut data) = (vec![], vec![]);
    for (gguf, name, shape) in tensors() {
        let begin = data.len();
        data.extend(numbers(&gguf, &shape).iter().flat_map(|v| v.to_le_bytes()));
        let offsets = [begin, data.len()];
        header.push(format!(
            r#""{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":{offsets:?}}}"#
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
}
