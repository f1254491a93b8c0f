# Waits until the test process is gone, in whatever way (its end of our standard input
# closes with it), then ends what it started and removes its folders, given as arguments.
trap '' HUP INT TERM
while read -r _; do :; done

# One line per living process: pid, parent, start time.
processes() {
  for stat in /proc/[0-9]*/stat; do
    line=
    read -r line <"$stat" || [ -n "$line" ] || continue
    pid=${line%% *}
    set -- ${line##*) }
    [ "$1" = Z ] || echo "$pid $2 ${20}"
  done
}

# Those that a pid file names (if their start time is the one in it), those that work in
# the folder, and the children of both.
victims() {
  folder=$1
  found=' '
  for file in "$folder"/pid "$folder"/*/pid; do
    [ -r "$file" ] || continue
    read -r pid started <"$file"
    while read -r id parent began; do
      if [ "$id $began" = "$pid $started" ]; then found="$found$id "; fi
    done <<LIST
$all
LIST
  done
  while read -r line; do
    case "$line" in
      *" -> $folder/"*)
        line=${line#*/proc/}
        found="$found${line%%/*} "
        ;;
    esac
  done <<LIST
$(ls -ld /proc/[0-9]*/cwd)
LIST
  grew=yes
  while [ -n "$grew" ]; do
    grew=
    while read -r id parent began; do
      case "$found" in *" $id "*) continue ;; esac
      case "$found" in *" $parent "*) found="$found$id " grew=yes ;; esac
    done <<LIST
$all
LIST
  done
  echo "$found"
}

for folder in "$@"; do
  round=0
  while [ "$round" -lt 200 ]; do
    round=$((round + 1))
    all=$(processes)
    list=$(victims "$folder")
    [ -n "${list# }" ] || break
    kill -9 $list
    sleep 0.02
  done
  rm -rf "$folder"
done
