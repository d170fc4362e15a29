#!/bin/sh
# Start a program of Palimpsest wherever pip, uv or pipx has put it: launch.sh palimpsest|palimpsest-hook [ARGUMENT…]
#
# A plugin knows no absolute path, and a client that was started from a menu has a short PATH. Without the program the
# server comes from uvx or pipx, which download it. A hook never waits for that: it ends at once, and says nothing.

program=$1
shift
home=${HOME:-}
data=${XDG_DATA_HOME:-$home/.local/share}

found=$(command -v "$program" 2>/dev/null) && [ -x "$found" ] && exec "$found" "$@"

for folder in \
    "${UV_TOOL_BIN_DIR:-}" "${PIPX_BIN_DIR:-}" "${XDG_BIN_HOME:-}" "$home/.local/bin" \
    "${UV_TOOL_DIR:-$data/uv/tools}/palimpsest-mcp/bin" \
    "${PIPX_HOME:-$data/pipx}/venvs/palimpsest-mcp/bin" \
    "$home/.local/pipx/venvs/palimpsest-mcp/bin" \
    "$home/Library/Application Support/pipx/venvs/palimpsest-mcp/bin" \
    "${APPDATA:-$home/AppData/Roaming}/uv/tools/palimpsest-mcp/Scripts" \
    "$home/pipx/venvs/palimpsest-mcp/Scripts"
do
    for file in "$folder/$program" "$folder/$program.exe"; do
        # an empty variable would make it a path from the root
        [ -n "$folder" ] && [ -f "$file" ] && [ -x "$file" ] && exec "$file" "$@"
    done
done

[ "$program" = palimpsest-hook ] && exit 0

for uvx in "$(command -v uvx 2>/dev/null)" "$home/.local/bin/uvx" "$home/.cargo/bin/uvx" /opt/homebrew/bin/uvx /usr/local/bin/uvx; do
    [ -n "$uvx" ] && [ -x "$uvx" ] && exec "$uvx" --from palimpsest-mcp palimpsest "$@"
done
for pipx in "$(command -v pipx 2>/dev/null)" "$home/.local/bin/pipx" /opt/homebrew/bin/pipx /usr/local/bin/pipx; do
    [ -n "$pipx" ] && [ -x "$pipx" ] && exec "$pipx" run --spec palimpsest-mcp palimpsest "$@"
done
echo "Palimpsest is not installed. Run: uv tool install palimpsest-mcp, or: pipx install palimpsest-mcp" >&2
exit 1
