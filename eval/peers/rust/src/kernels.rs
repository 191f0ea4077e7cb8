//! Kernels of next-plaid that its library exports, and maxsim-lut, on the shapes that ../README.md describes.

use crate::npy::{self, Result};
use maxsim_lut::{Codes, DocView, Lut, PreparedQuery, Scorer};
use ndarray::{s, Array1, Array2};
use next_plaid::{binary, codec::ResidualCodec, maxsim, residual_lut as lut};
use serde_json::{json, Value};
use std::{hint::black_box, path::Path, time::Instant};

const DIM: usize = 128;
const QUERY_TOKENS: usize = 32;

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 32) as usize * n) >> 32
    }
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
    /// Rows of length 1, near enough to random directions.
    fn vectors(&mut self, n: usize) -> Array2<f32> {
        let mut x = Array2::from_shape_simple_fn((n, DIM), || (0..4).map(|_| self.unit()).sum::<f32>() - 2.0);
        for mut row in x.outer_iter_mut() {
            let norm = row.dot(&row).sqrt();
            row /= norm;
        }
        x
    }
}

/// Fifteen samples of at least 30 ms each, in nanoseconds a call.
fn time(mut f: impl FnMut()) -> Vec<f64> {
    f();
    (0..15)
        .map(|_| {
            let (start, mut calls) = (Instant::now(), 0);
            while calls == 0 || start.elapsed().as_millis() < 30 {
                f();
                calls += 1;
            }
            start.elapsed().as_nanos() as f64 / calls as f64
        })
        .collect()
}

const NEXT_PLAID: &str = "next-plaid 1.8.5";

fn record(out: &mut Vec<Value>, work: &str, engine: &str, how: &str, per: f64, samples: Vec<f64>) {
    let samples: Vec<f64> = samples.iter().map(|x| x / per).collect();
    out.push(json!({"work": work, "engine": engine, "how": how, "samples": samples}));
}

fn rescoring(out: &mut Vec<Value>, name: &str, nbits: usize, k: usize, docs: usize) -> Result<()> {
    let mut rng = Random(7);
    let centroids = rng.vectors(k);
    let query = rng.vectors(QUERY_TOKENS);
    let buckets = 1usize << nbits;
    let weights = Array1::from_shape_fn(buckets, |b| 0.1 * (b as f32 + 0.5) / buckets as f32 - 0.05);
    let cutoffs = Array1::from_shape_fn(buckets - 1, |b| 0.1 * (b as f32 + 1.0) / buckets as f32 - 0.05);
    let codec = ResidualCodec::new(nbits, centroids, Array1::zeros(DIM), Some(cutoffs), Some(weights))?;
    let mut offsets = vec![0];
    for _ in 0..docs {
        offsets.push(offsets.last().unwrap() + 40 + rng.below(121));
    }
    let tokens = *offsets.last().unwrap();
    let codes: Vec<i64> = (0..tokens).map(|_| rng.below(k) as i64).collect();
    let packed = Array2::from_shape_simple_fn((tokens, DIM * nbits / 8), || rng.next() as u8);
    let inverse = lut::compute_inv_norms(&codec, &codes, &packed.view()).ok_or("no norms")?;
    let mut order: Vec<usize> = (0..docs).collect();
    for i in (1..docs).rev() {
        order.swap(i, rng.below(i + 1));
    }

    let table = lut::quantize_lut(&codec).ok_or("no table")?;
    let q8 = binary::quantize_query_i8(&query.view());
    let planes = lut::build_query_planes(&q8, &table, DIM);
    let cdot = codec.centroids_view().dot(&query.t()); // [K, Lq], as its search hands it over
    let kernel = lut::active_kernel_name(DIM, table.nibble.is_some());
    let score = |d: usize, norms: &[f32]| {
        let (lo, hi) = (offsets[d], offsets[d + 1]);
        let rows = packed.slice(s![lo..hi, ..]);
        lut::maxsim_residual_lut_i8(&q8, Some(&planes), &rows, &codes[lo..hi], &cdot.view(), &table, norms, DIM)
    };
    let samples = time(|| {
        for &d in &order {
            black_box(score(d, &inverse[offsets[d]..offsets[d + 1]]));
        }
    });
    record(out, &format!("rerank {nbits} bits {name}"), NEXT_PLAID, &format!("maxsim_residual_lut_i8 ({kernel}), stored norms"), tokens as f64, samples);

    // The same documents and centroid scores, norms stored as well.
    let theirs = Lut::colbert(nbits, codec.bucket_weights.as_ref().ok_or("no weights")?.as_slice().ok_or("weights")?)?;
    let prepared = PreparedQuery::new(&theirs, query.as_slice().ok_or("query")?, QUERY_TOKENS, DIM)?;
    let cdot_rows = cdot.as_standard_layout();
    let scorer = Scorer::new(&theirs, &prepared).with_centroid_term(cdot_rows.as_slice().ok_or("cdot")?, k)?;
    let ids: Vec<u32> = codes.iter().map(|&c| c as u32).collect();
    let (bytes, stride) = (packed.as_slice().ok_or("packed")?, DIM * nbits / 8);
    let lut_score = |d: usize| {
        let (lo, hi) = (offsets[d], offsets[d + 1]);
        let doc = DocView::new(&bytes[lo * stride..hi * stride], hi - lo, stride);
        scorer.score(doc.codes(Codes::U32(&ids[lo..hi])).inv_norms(&inverse[lo..hi]))
    };
    let off = (0..docs.min(100)).map(|d| (lut_score(d) - score(d, &inverse[offsets[d]..offsets[d + 1]])).abs()).fold(0.0, f32::max);
    if off > 0.05 {
        return Err(format!("maxsim-lut and next-plaid differ by {off}: they do not score the same").into());
    }
    let samples = time(|| {
        for &d in &order {
            black_box(lut_score(d));
        }
    });
    record(out, &format!("rerank {nbits} bits {name}"), "maxsim-lut 0.1.0", &format!("Scorer::score ({:?}), stored norms", theirs.kernel(DIM)), tokens as f64, samples);
    if nbits == 2 {
        let samples = time(|| {
            for &d in &order {
                let (lo, hi) = (offsets[d], offsets[d + 1]);
                let norms = lut::compute_inv_norms(&codec, &codes[lo..hi], &packed.slice(s![lo..hi, ..])).unwrap();
                black_box(score(d, &norms));
            }
        });
        record(out, &format!("rerank {nbits} bits {name}"), NEXT_PLAID, "the same, norms computed, as for older indexes", tokens as f64, samples);
    }
    Ok(())
}

fn nearest(out: &mut Vec<Value>, name: &str, dir: &Path, k: usize) -> Result<()> {
    let all = npy::tokens(dir)?;
    let centroids = all.slice(s![..;(all.nrows() / k), ..]).slice(s![..k, ..]).to_owned();
    let x = all.slice(s![..;(all.nrows() / 4096), ..]).slice(s![..4096, ..]).to_owned();
    let samples = time(|| {
        black_box(maxsim::assign_to_centroids(&x.view(), &centroids.view()));
    });
    let operations = 2.0 * x.len() as f64 * k as f64;
    let rates = samples.iter().map(|ns| operations / ns).collect();
    record(out, &format!("nearest {name} K={k}"), NEXT_PLAID, "assign_to_centroids", 1.0, rates);
    Ok(())
}

/// Everything; `collections` are (name, folder, K).
pub fn run(collections: &[(String, String, usize)]) -> Result<Value> {
    let mut out = Vec::new();
    for nbits in [2, 4] {
        rescoring(&mut out, "hot", nbits, 4096, 100)?;
        rescoring(&mut out, "random", nbits, 65536, 10_000)?;
    }
    let mut rng = Random(9);
    let (centroids, query) = (rng.vectors(65536), rng.vectors(QUERY_TOKENS));
    let samples = time(|| {
        black_box(query.dot(&centroids.t()));
    });
    record(&mut out, "centroid scores K=65536", NEXT_PLAID, "ndarray's dot, as its search calls it; f32, S only", 1e6, samples);
    for (name, dir, k) in collections {
        nearest(&mut out, name, Path::new(dir), *k)?;
    }
    Ok(Value::from(out))
}
