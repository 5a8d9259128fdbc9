//! The shell scripts that work on files within a sandbox, for `BusyBox` and others.
//!
//! Paths are literal arguments, absolute or beginning with `./`. What fails in a way that
//! callers tell apart ends with one of the codes here.

/// It is a directory.
pub(super) const IS_DIRECTORY: i64 = 71;
/// It is not there.
pub(super) const NOT_FOUND: i64 = 72;
/// It is neither a file nor a directory.
pub(super) const SPECIAL: i64 = 73;
/// It may not be read.
pub(super) const DENIED: i64 = 74;
/// It is larger than may be read; its size is printed.
pub(super) const TOO_LARGE: i64 = 75;
/// Its directory cannot be made, for the reason in the errors.
pub(super) const NO_PARENT: i64 = 76;
/// What was searched is a file.
pub(super) const IS_FILE: i64 = 77;
/// The expression is none.
pub(super) const BAD_EXPRESSION: i64 = 78;
/// It is not the file that was read.
pub(super) const CHANGED: i64 = 79;

/// Prints a file (`$1`) that has at most `$2` bytes, and among the errors what tells this
/// content from others.
pub(super) const READ: &str = r#"
if [ -d "$1" ]; then exit 71; fi
if [ ! -e "$1" ]; then exit 72; fi
if [ ! -f "$1" ]; then exit 73; fi
if [ ! -r "$1" ]; then exit 74; fi
n=$(($(wc -c < "$1"))) || exit 74
if [ "$n" -gt "$2" ]; then echo "$n"; exit 75; fi
stat -L -c '%i %s %Y %Z' "$1" >&2
exec head -c "$2" < "$1"
"#;

/// Appends the input, which is in base64, to what will replace a file (`$1`, in the
/// directory `$2`): to a sibling (`$3`). Where `$4` is `last`, it does replace it then, if
/// `$5` is empty or tells the content that is there. An old file's mode and owner stay.
pub(super) const WRITE: &str = r#"
umask 022
f=$1 d=$2
if [ -d "$f" ]; then exit 71; fi
if [ -L "$f" ]; then
  f=$(readlink -f "$f") || exit 72
  d=$(dirname "$f")
fi
if [ -e "$f" ] && [ ! -f "$f" ]; then exit 73; fi
mkdir -p "$d" || exit 76
t=$d/$3
if [ "$4" = last ]; then trap 'rm -f "$t"' EXIT; fi
base64 -d >> "$t" || { rm -f "$t"; exit 1; }
if [ "$4" != last ]; then exit 0; fi
if [ -f "$f" ]; then
  chown "$(stat -c %u:%g "$f")" "$t" 2>/dev/null
  chmod "$(stat -c %a "$f")" "$t" || exit 1
fi
if [ "$5" ] && [ "$5" != "$(stat -c '%i %s %Y %Z' "$f")" ]; then exit 79; fi
mv -f "$t" "$f" 2>/dev/null || cat "$t" > "$f"
"#;

/// Ends well where a regular file is at `$1`.
pub(super) const EXISTS: &str = r#"[ -f "$1" ]"#;

/// Prints at most `$2` bytes of what is in a directory (`$1`): mode, size and name, each ending with `//` and a
/// line feed; then a NUL; then name and target of each link, each ending with a NUL.
pub(super) const LS: &str = r#"
cd "$1" 2>/dev/null || exit 72
{
  find . -mindepth 1 -maxdepth 1 ! -type l -exec stat -c '%f %s %n//' {} + 2>/dev/null
  printf '\0'
  find . -mindepth 1 -maxdepth 1 -type l -exec sh -c '
    for l do printf "%s\0" "$l"; readlink -n "$l"; printf "\0"; done' sh {} + 2>/dev/null
} | head -c "$2"
exit 0
"#;

/// Prints at most `$2` bytes of the regular files below a directory (`$1`), each ending
/// with a NUL.
pub(super) const FIND: &str = r#"
if [ -f "$1" ]; then exit 77; fi
cd "$1" 2>/dev/null || exit 72
find . -type f -print0 2>/dev/null | head -c "$2"
exit 0
"#;

/// Searches the files of the input, each ending with a NUL and all in base64, from the
/// directory `$1`, for an extended expression (`$2`): prints of each one that has it the
/// name, a NUL, the lines with their numbers and a NUL; at most `$3` bytes.
pub(super) const GREP: &str = r#"
cd "$1" 2>/dev/null || exit 72
printf '' | grep -E -e "$2" >/dev/null
[ $? -le 1 ] || exit 78
base64 -d | xargs -0 grep -lIE -e "$2" -- /dev/null 2>/dev/null | while IFS= read -r f; do
  printf '%s\0' "$f"
  grep -nIE -e "$2" -- "$f" 2>/dev/null
  printf '\0'
done | head -c "$3"
exit 0
"#;
