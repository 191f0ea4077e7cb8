//! Times next-plaid, and kernels of maxsim-lut. Results are JSON on standard output.
//!
//!     peers-bench kernels NAME=DATA=K...
//!     peers-bench build DATA INDEX NBITS
//!     peers-bench search DATA INDEX K PROBES SCORES SECONDS
//!     peers-bench throughput DATA INDEX K PROBES SCORES SECONDS
//!     peers-bench approx NAME DATA INDEX
//!     peers-bench hits DATA INDEX
//!     peers-bench metadata DATA INDEX

mod kernels;
mod npy;

use next_plaid::{filtering, IndexConfig, MmapIndex, SearchParameters};
use npy::Result;
use serde_json::{json, Value};
use std::{collections::HashSet, path::Path, time::Instant};

fn build(data: &str, path: &str, nbits: usize) -> Result<Value> {
    let docs = npy::documents(Path::new(data))?;
    let config = IndexConfig { nbits, ..IndexConfig::default() };
    let start = Instant::now();
    let index = MmapIndex::create_with_kmeans(&docs, path, &config)?;
    Ok(json!({"seconds": start.elapsed().as_secs_f64(), "centroids": index.num_partitions()}))
}

/// Queries one at a time: a pass to warm up and learn the hits, then up to
/// three timed ones while time lasts.
fn search(data: &str, path: &str, params: &SearchParameters, seconds: f64) -> Result<Value> {
    let queries = npy::queries(Path::new(data))?;
    let index = MmapIndex::load(path)?;
    let mut hits = Vec::new();
    for q in &queries {
        hits.push(index.search(q, params, None)?.passage_ids);
    }
    let begin = Instant::now();
    let mut passes = Vec::new();
    for _ in 0..3 {
        let mut times = Vec::new();
        for q in &queries {
            let start = Instant::now();
            index.search(q, params, None)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        passes.push(times);
        if begin.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    Ok(json!({"hits": hits, "latency_ms": passes}))
}

/// All queries handed in at once, on all cores: a pass to warm up, then passes while time lasts, of
/// which the queries a second are given.
fn throughput(data: &str, path: &str, params: &SearchParameters, seconds: f64) -> Result<Value> {
    let queries = npy::queries(Path::new(data))?;
    let index = MmapIndex::load(path)?;
    let found = index.search_batch(&queries, params, true, None)?;
    let hits: Vec<_> = found.into_iter().map(|f| f.passage_ids).collect();
    let begin = Instant::now();
    let mut rates = Vec::new();
    while rates.is_empty() || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        index.search_batch(&queries, params, true, None)?;
        rates.push(queries.len() as f64 / start.elapsed().as_secs_f64());
    }
    Ok(json!({"hits": hits, "queries_per_second": rates}))
}

/// Every document's score for every query: query, document, score, one a line.
fn hits(data: &str, path: &str) -> Result<()> {
    let index = MmapIndex::load(path)?;
    let all = index.doc_lengths.len();
    let params = SearchParameters {
        top_k: all,
        n_full_scores: 4 * all,
        n_ivf_probe: index.num_partitions(),
        centroid_score_threshold: None,
        ..SearchParameters::default()
    };
    for (i, q) in npy::queries(Path::new(data))?.iter().enumerate() {
        let found = index.search(q, &params, None)?;
        let mut rows: Vec<_> = found.passage_ids.iter().zip(&found.scores).collect();
        rows.sort_by_key(|r| r.0);
        for (doc, score) in rows {
            println!("{i}\t{doc}\t{score:.4}");
        }
    }
    Ok(())
}

/// Stores DATA/metadata.json beside an index, with a document that is deleted again and some
/// that are added later: the way of a database that has been in use.
fn metadata(data: &str, path: &str) -> Result<Value> {
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(Path::new(data).join("metadata.json"))?)?;
    let (first, last) = all.split_at(all.len() - 6);
    let ids = |from: usize, to: usize| (from as i64..to as i64).collect::<Vec<_>>();
    let mut with_extra = vec![json!({"name": "deleted"})];
    with_extra.extend_from_slice(first);
    filtering::create(path, &with_extra, &ids(0, with_extra.len()))?;
    filtering::delete(path, &[0])?;
    filtering::update(path, last, &ids(first.len(), all.len()))?;
    Ok(json!({"documents": all.len()}))
}

/// The candidate stage has no public function. Searches with more and more
/// probes, of which one document is scored exactly, differ by what candidates
/// cost: the slope of time over candidate tokens.
fn approx(name: &str, data: &str, path: &str) -> Result<Value> {
    let mut queries = npy::queries(Path::new(data))?;
    queries.truncate(50);
    let index = MmapIndex::load(path)?;
    let centroids = index.codec.centroids_view();
    let ranked: Vec<Vec<Vec<usize>>> = queries
        .iter()
        .map(|q| {
            let s = q.dot(&centroids.t());
            let best = |row: ndarray::ArrayView1<f32>| {
                let mut order: Vec<usize> = (0..row.len()).collect();
                order.select_nth_unstable_by(32, |&a, &b| row[b].total_cmp(&row[a]));
                order.truncate(32);
                order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
                order
            };
            s.outer_iter().map(best).collect()
        })
        .collect();
    let probes = [1usize, 2, 4, 8, 16, 32];
    let mut tokens = Vec::new();
    for n in probes {
        let mut sum = 0;
        for tops in &ranked {
            let cells: HashSet<usize> = tops.iter().flat_map(|t| t[..n].iter().copied()).collect();
            let cells: Vec<usize> = cells.into_iter().collect();
            sum += index.get_candidates(&cells).iter().map(|&d| index.doc_lengths[d as usize]).sum::<i64>();
        }
        tokens.push(sum as f64 / queries.len() as f64);
    }
    let mut samples = Vec::new();
    for pass in 0..8 {
        let mut times = Vec::new();
        for n in probes {
            let params = SearchParameters { top_k: 1, n_full_scores: 4, n_ivf_probe: n, centroid_score_threshold: None, ..SearchParameters::default() };
            let start = Instant::now();
            for q in &queries {
                index.search(q, &params, None)?;
            }
            times.push(start.elapsed().as_nanos() as f64 / queries.len() as f64);
        }
        if pass > 0 {
            samples.push(slope(&tokens, &times));
        }
    }
    Ok(json!([{"work": format!("approximate {name}"), "engine": "next-plaid 1.8.5", "how": "gathering and scoring candidates, by difference of searches", "samples": samples}]))
}

fn slope(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let covariance: f64 = x.iter().zip(y).map(|(a, b)| (a - mx) * (b - my)).sum();
    covariance / x.iter().map(|a| (a - mx) * (a - mx)).sum::<f64>()
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["kernels", collections @ ..] => {
            let mut list = Vec::new();
            for c in collections {
                let parts: Vec<&str> = c.split('=').collect();
                let [name, dir, k] = parts[..] else { return Err(format!("{c}: not NAME=DATA=K").into()) };
                list.push((name.to_string(), dir.to_string(), k.parse()?));
            }
            kernels::run(&list)?
        }
        ["build", data, path, nbits] => build(data, path, nbits.parse()?)?,
        [what @ ("search" | "throughput"), data, path, k, probes, scores, seconds] => {
            let params = SearchParameters {
                top_k: k.parse()?,
                n_ivf_probe: probes.parse()?,
                n_full_scores: scores.parse()?,
                ..SearchParameters::default()
            };
            let measure = if *what == "search" { search } else { throughput };
            measure(data, path, &params, seconds.parse()?)?
        }
        ["approx", name, data, path] => approx(name, data, path)?,
        ["metadata", data, path] => metadata(data, path)?,
        ["hits", data, path] => return hits(data, path),
        _ => return Err("usage: kernels NAME=DATA=K... | build DATA INDEX NBITS | search|throughput DATA INDEX K PROBES SCORES SECONDS | approx NAME DATA INDEX | hits|metadata DATA INDEX".into()),
    };
    println!("{result}");
    Ok(())
}
