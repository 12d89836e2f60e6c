#!/bin/sh
# Copies the golden files into fuzz/seeds/<target>, where the fuzzer begins.
set -eu
cd "$(dirname "$0")"
golden=../tests/golden
mkdir -p seeds/metadata seeds/header seeds/session
cp "$golden"/consolidated/*.metadata.json seeds/metadata
cp "$golden"/leaves/*.header.json seeds/header
# A stream of two messages: new schema, metadata, keep; same schema.
for file in "$golden"/consolidated/*.metadata.json; do
    len=$(wc -c <"$file")
    {
        printf "\\0\\$(printf %o $((len % 256)))\\$(printf %o $((len / 256)))"
        cat "$file"
        printf '\001'
    } >"seeds/session/$(basename "$file")"
done
