#compdef sandboxctl

autoload -U is-at-least

_sandboxctl() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_sandboxctl_commands" \
"*::: :->sandboxctl" \
&& ret=0
    case $state in
    (sandboxctl)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:sandboxctl-command-$line[1]:"
        case $line[1] in
            (ls)
_arguments "${_arguments_options[@]}" : \
'--tenant=[Only the sessions of this tenant]:TENANT:_default' \
'--state=[Only the sessions in this state]:STATE:((running\:"Resident, or on its way there"
hibernated\:"Asleep"))' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--usage[Show memory, processor and processes too]' \
'(--usage)-q[Print ids and nothing else]' \
'(--usage)--quiet[Print ids and nothing else]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(get)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--usage[Sample memory, processor and processes too]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
&& ret=0
;;
(open)
_arguments "${_arguments_options[@]}" : \
'--id=[The session'\''s id; the service makes one if none is given]:ID:_default' \
'--runtime=[The runtime, one of those that the service allows]:ALIAS:_default' \
'--tenant=[The tenant under whose ceiling the session counts]:TENANT:_default' \
'--wait=[Wait this long for a place where a ceiling is reached, first come first served]:SECONDS:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--reuse[Attach where the session is open, instead of refusing]' \
'(--reuse)--attach[Attach where the session is open or has files, and refuse elsewhere]' \
'--show-token[Print the session'\''s token on a second line]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(exec)
_arguments "${_arguments_options[@]}" : \
'*-e+[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'*--env=[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'-w+[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'--workdir=[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'-u+[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--user=[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'-i[Read standard input to its end, as text, and let the command read it]' \
'--stdin[Read standard input to its end, as text, and let the command read it]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session; it is woken where it sleeps:_default' \
'*::command -- The command\: one argument is text for the shell, several are a program with its arguments, which reach it as they are:_cmdambivalent' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'*-e+[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'*--env=[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'-w+[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'--workdir=[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'-u+[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--user=[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'-d[Start it in the background, and print its id]' \
'--detach[Start it in the background, and print its id]' \
'-i[Read standard input to its end, as text, and let the command read it]' \
'--stdin[Read standard input to its end, as text, and let the command read it]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session; it is woken where it sleeps:_default' \
'*::command -- The program and its arguments, which reach it as they are:_cmdambivalent' \
&& ret=0
;;
(shell)
_arguments "${_arguments_options[@]}" : \
'(-e --env -w --workdir -u --user)--attach=[Come back to this terminal, and write there, instead of opening one]:TTY:_default' \
'*-e+[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'*--env=[Set a variable, over those of the sandbox; may be given often]:NAME=VALUE:_default' \
'-w+[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'--workdir=[Begin in this directory; relative to the work directory]:DIRECTORY:_default' \
'-u+[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--user=[Run as this user, where the runtime lets callers choose\: a name or a number, and a group after a colon]:USER:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session; it is woken where it sleeps:_default' \
'*::command -- The program and its arguments; a shell if not given:_cmdambivalent' \
&& ret=0
;;
(runs)
_arguments "${_arguments_options[@]}" : \
'*--rm=[Remove this run, which has to be over, and its output instead; may be given often]:RUN:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
&& ret=0
;;
(logs)
_arguments "${_arguments_options[@]}" : \
'--since-seq=[Begin with this record]:N:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'-f[Go on showing what it writes, until it ends or this is interrupted]' \
'--follow[Go on showing what it writes, until it ends or this is interrupted]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
':run -- The run, as `runs` shows it:_default' \
&& ret=0
;;
(kill)
_arguments "${_arguments_options[@]}" : \
'-s+[The signal\: its name or its number]:SIGNAL:_default' \
'--signal=[The signal\: its name or its number]:SIGNAL:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
':run -- The run, as `runs` shows it:_default' \
&& ret=0
;;
(stop)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The session:_default' \
':run -- The run, as `runs` shows it:_default' \
&& ret=0
;;
(cp)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':source -- The file\: ID\:PATH in a session, a local one, or - for standard input:_default' \
':target -- Where it goes\: ID\:PATH in a session, a local file or directory, or - for standard output:_default' \
&& ret=0
;;
(events)
_arguments "${_arguments_options[@]}" : \
'--tenant=[Only those of this tenant'\''s sessions]:NAME:_default' \
'--kind=[Only operations, what became of sessions, or neither]:KIND:(operation lifecycle service)' \
'--op=[Only this operation, such as exec, or this fact, such as hibernated]:NAME:_default' \
'--since=[Only those of the last while, such as 90s, 10m, 2h or 1d]:SPAN:_default' \
'--after=[Only what came after this sequence number]:N:_default' \
'--limit=[At most so many, the oldest first; the newest 200 if not given]:N:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'(--limit)-f[Go on showing what is done, until interrupted or the session is gone]' \
'(--limit)--follow[Go on showing what is done, until interrupted or the session is gone]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::id -- The session whose own log is shown; without one, or with a filter, the log of the service\: all sessions, and what became of them:_default' \
&& ret=0
;;
(rm)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--purge[Remove their files too]' \
'-y[Do not ask before files are removed]' \
'--yes[Do not ask before files are removed]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::ids -- The sessions:_default' \
&& ret=0
;;
(hibernate)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::ids -- The sessions:_default' \
&& ret=0
;;
(wake)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::ids -- The sessions:_default' \
&& ret=0
;;
(purge)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--close[Close a session that is open, instead of refusing]' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::ids -- The ids; whether their sessions are open, closed or unknown:_default' \
&& ret=0
;;
(workspaces)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'-q[Print ids and nothing else]' \
'--quiet[Print ids and nothing else]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
'--format=[How the archive is written]:FORMAT:((tar\:"Plain tar"
tar.zst\:"Tar compressed by zstd"))' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The id of the workspace; whether its session is open or closed:_default' \
&& ret=0
;;
(import)
_arguments "${_arguments_options[@]}" : \
'--runtime=[The runtime of an id that is not known yet]:ALIAS:_default' \
'--tenant=[The tenant of an id that is not known yet]:TENANT:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--replace[Have the archive take the place of files that are there, instead of refusing]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':id -- The id that gets the files:_default' \
&& ret=0
;;
(backup)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--with-key[Have the key of all session tokens in it, to restore it on another host; whoever reads it can use every session]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::file -- Where it goes; standard output if not given, or -:_files' \
&& ret=0
;;
(health)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(sweep)
_arguments "${_arguments_options[@]}" : \
'--within=[Show what is due within this time, such as 90s, 10m, 2h or 1d; until the next sweep if not given]:SPAN:_default' \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'--dry-run[Do nothing but show what is taken, and why]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'--url=[Where the service is\: http\://HOST\:PORT or unix\:///PATH]:URL:_urls' \
'--token-file=[Read the token from this file; - is standard input]:PATH:_files' \
'-o+[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--output=[How to print]:FORMAT:((table\:"For people"
json\:"As the API has it"))' \
'--timeout=[Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long]:SECONDS:_default' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'--no-headers[Print tables without their first line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- The hold:(store_rebuilt engine_changed workspace_root_changed)' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_sandboxctl_commands] )) ||
_sandboxctl_commands() {
    local commands; commands=(
'ls:List open sessions' \
'get:Describe a session' \
'explain:Explain a session\: what it should be, what it is, what comes next, and why' \
'open:Open a session, and print its id' \
'exec:Run a command in a session, and end as it ends' \
'run:Run a program in a session and end as it ends, or in the background' \
'shell:Sit at a terminal in a session, and end as its program ends' \
'runs:List the runs of a session that were started in the background, or remove one' \
'logs:Show what a run wrote' \
'kill:Send a signal to the processes of a run' \
'stop:Stop a run\: TERM, and KILL two seconds later' \
'cp:Copy a file out of a session or into one' \
'events:Show what was done in a session' \
'rm:Close sessions; their files stay unless --purge is given' \
'hibernate:Put sessions to sleep that nothing uses; their next use wakes them' \
'wake:Wake sessions, and wait until their sandboxes run' \
'purge:Remove everything that an id ever had\: files, container, record and log' \
'workspaces:List workspaces, whether their sessions are open or not' \
'export:Write a workspace to standard output as an archive' \
'import:Take an archive from standard input into a session that is new or closed' \
'backup:Write a backup of the service'\''s records to a file, or to standard output' \
'health:Tell how the service is' \
'doctor:Check the service'\''s invariants, and say what to do where one is broken' \
'sweep:Remove now what is idle, expired or nobody'\''s, or show what that would be' \
'release:Let go of a hold, which \`health\` tells of' \
    )
    _describe -t commands 'sandboxctl commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__backup_commands] )) ||
_sandboxctl__subcmd__backup_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl backup commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__cp_commands] )) ||
_sandboxctl__subcmd__cp_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl cp commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__doctor_commands] )) ||
_sandboxctl__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl doctor commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__events_commands] )) ||
_sandboxctl__subcmd__events_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl events commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__exec_commands] )) ||
_sandboxctl__subcmd__exec_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl exec commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__explain_commands] )) ||
_sandboxctl__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl explain commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__export_commands] )) ||
_sandboxctl__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl export commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__get_commands] )) ||
_sandboxctl__subcmd__get_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl get commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__health_commands] )) ||
_sandboxctl__subcmd__health_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl health commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__hibernate_commands] )) ||
_sandboxctl__subcmd__hibernate_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl hibernate commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__import_commands] )) ||
_sandboxctl__subcmd__import_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl import commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__kill_commands] )) ||
_sandboxctl__subcmd__kill_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl kill commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__logs_commands] )) ||
_sandboxctl__subcmd__logs_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl logs commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__ls_commands] )) ||
_sandboxctl__subcmd__ls_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl ls commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__open_commands] )) ||
_sandboxctl__subcmd__open_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl open commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__purge_commands] )) ||
_sandboxctl__subcmd__purge_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl purge commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__release_commands] )) ||
_sandboxctl__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl release commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__rm_commands] )) ||
_sandboxctl__subcmd__rm_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl rm commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__run_commands] )) ||
_sandboxctl__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl run commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__runs_commands] )) ||
_sandboxctl__subcmd__runs_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl runs commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__shell_commands] )) ||
_sandboxctl__subcmd__shell_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl shell commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__stop_commands] )) ||
_sandboxctl__subcmd__stop_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl stop commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__sweep_commands] )) ||
_sandboxctl__subcmd__sweep_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl sweep commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__wake_commands] )) ||
_sandboxctl__subcmd__wake_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl wake commands' commands "$@"
}
(( $+functions[_sandboxctl__subcmd__workspaces_commands] )) ||
_sandboxctl__subcmd__workspaces_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxctl workspaces commands' commands "$@"
}

if [ "$funcstack[1]" = "_sandboxctl" ]; then
    _sandboxctl "$@"
else
    compdef _sandboxctl sandboxctl
fi
