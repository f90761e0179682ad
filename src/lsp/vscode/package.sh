#!/bin/sh
# Packs the extension as a `.vsix` beside this script; needs npm. `code --install-extension FILE` installs it.
set -eu
cd "$(dirname "$0")"
npm install --no-audit --no-fund
npx vsce package --allow-missing-repository --skip-license
