#!/usr/bin/env bash
# Writes bills of materials (CycloneDX 1.5) of the program, with all its features, and of the Python wheel.
#
#   tools/sbom.sh [FOLDER]      (default: dist)
#
# It needs `cargo install --locked cargo-cyclonedx` and compiles nothing. A built wheel has its own in *.dist-info/sboms.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-dist} name=turnwise-sbom
mkdir -p "$folder"
# It writes a file beside each Cargo.toml of the workspace.
trap 'find crates bindings -name "$name.json" -delete' EXIT
cargo cyclonedx --format json --spec-version 1.5 --all-features --target all --override-filename "$name"
cp "crates/cli/$name.json" "$folder/turnwise.cdx.json"
cp "bindings/python/$name.json" "$folder/turnwise-python.cdx.json"
for file in turnwise turnwise-python; do
    printf '%s: %d components\n' "$folder/$file.cdx.json" "$(grep -c '"purl": "pkg:cargo' "$folder/$file.cdx.json")"
done
