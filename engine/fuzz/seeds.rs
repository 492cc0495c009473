//! Writes inputs from which the fuzz targets begin: `cargo run --example seeds` in this folder fills
//! `corpus`. Mutations of random bytes alone hardly ever become an archive or a handshake.

use std::io;
use std::path::Path;

#[path = "checks.rs"]
#[expect(dead_code, reason = "batches and logins alone are used here")]
mod checks;

/// The beginning of a server's hello.
const MAGIC: &[u8; 8] = ringkeeper_host::links::MAGIC;

fn main() -> io::Result<()> {
    let logins = checks::unproved_logins();
    for (target, seeds) in [("batches", batches()), ("links", links()), ("logins", logins)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
        println!("{}: {} inputs", folder.display(), seeds.len());
    }
    Ok(())
}

/// Batches of each kind of transaction, and of all.
fn batches() -> Vec<Vec<u8>> {
    let txns = checks::sound_txns();
    let alone = txns.iter().map(std::slice::from_ref);
    alone.chain([txns.as_slice()]).map(|txns| checks::encoded(txns).to_vec()).collect()
}

/// What strangers say to a server that accepts (0) and to one that dials (1): a hello in parts, with a proof,
/// for either server; then changes of each part of what two servers say to each other (2).
fn links() -> Vec<Vec<u8>> {
    let hello = |from: u64, to: u64| [&MAGIC[..], &from.to_le_bytes(), &to.to_le_bytes(), &[7; 32]].concat();
    let mut seeds = Vec::new();
    for (side, hello) in [(0, hello(2, 1)), (1, hello(1, 2)), (0, hello(1, 1)), (1, hello(3, 2))] {
        for len in [0, 7, 8, 24, hello.len()] {
            seeds.push([&[side], &hello[..len]].concat());
        }
        seeds.push([&[side], &hello[..], &[9; 32], &[5, 0, 0, 0, 1, 2, 3, 4, 5]].concat());
    }
    for place in [0_u16, 16, 40, 60, 112, 170, 176, 178, 200, 201] {
        let [low, high] = place.to_le_bytes();
        seeds.push(vec![2, low, high, 1]);
    }
    seeds.push(vec![2]);
    seeds
}
