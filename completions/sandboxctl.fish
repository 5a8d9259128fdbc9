# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_sandboxctl_global_optspecs
    string join \n url= token-file= o/output= timeout= no-headers h/help V/version
end

function __fish_sandboxctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_sandboxctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_sandboxctl_using_subcommand
    set -l cmd (__fish_sandboxctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -s V -l version -d 'Print version'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "ls" -d 'List open sessions'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "get" -d 'Describe a session'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "explain" -d 'Explain a session: what it should be, what it is, what comes next, and why'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "open" -d 'Open a session, and print its id'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "exec" -d 'Run a command in a session, and end as it ends'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "run" -d 'Run a program in a session and end as it ends, or in the background'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "shell" -d 'Sit at a terminal in a session, and end as its program ends'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "runs" -d 'List the runs of a session that were started in the background, or remove one'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "logs" -d 'Show what a run wrote'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "kill" -d 'Send a signal to the processes of a run'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "stop" -d 'Stop a run: TERM, and KILL two seconds later'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "cp" -d 'Copy a file out of a session or into one'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "events" -d 'Show what was done in a session'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "rm" -d 'Close sessions; their files stay unless --purge is given'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "hibernate" -d 'Put sessions to sleep that nothing uses; their next use wakes them'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "wake" -d 'Wake sessions, and wait until their sandboxes run'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "purge" -d 'Remove everything that an id ever had: files, container, record and log'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "workspaces" -d 'List workspaces, whether their sessions are open or not'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "export" -d 'Write a workspace to standard output as an archive'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "import" -d 'Take an archive from standard input into a session that is new or closed'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "backup" -d 'Write a backup of the service\'s records to a file, or to standard output'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "health" -d 'Tell how the service is'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "doctor" -d 'Check the service\'s invariants, and say what to do where one is broken'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "sweep" -d 'Remove now what is idle, expired or nobody\'s, or show what that would be'
complete -c sandboxctl -n "__fish_sandboxctl_needs_command" -f -a "release" -d 'Let go of a hold, which `health` tells of'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l tenant -d 'Only the sessions of this tenant' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l state -d 'Only the sessions in this state' -r -f -a "running\t'Resident, or on its way there'
hibernated\t'Asleep'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l usage -d 'Show memory, processor and processes too'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -s q -l quiet -d 'Print ids and nothing else'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -l usage -d 'Sample memory, processor and processes too'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l id -d 'The session\'s id; the service makes one if none is given' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l runtime -d 'The runtime, one of those that the service allows' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l tenant -d 'The tenant under whose ceiling the session counts' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l wait -d 'Wait this long for a place where a ceiling is reached, first come first served' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l reuse -d 'Attach where the session is open, instead of refusing'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l attach -d 'Attach where the session is open or has files, and refuse elsewhere'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l show-token -d 'Print the session\'s token on a second line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand open" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s e -l env -d 'Set a variable, over those of the sandbox; may be given often' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s w -l workdir -d 'Begin in this directory; relative to the work directory' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s u -l user -d 'Run as this user, where the runtime lets callers choose: a name or a number, and a group after a colon' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s i -l stdin -d 'Read standard input to its end, as text, and let the command read it'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s e -l env -d 'Set a variable, over those of the sandbox; may be given often' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s w -l workdir -d 'Begin in this directory; relative to the work directory' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s u -l user -d 'Run as this user, where the runtime lets callers choose: a name or a number, and a group after a colon' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s d -l detach -d 'Start it in the background, and print its id'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s i -l stdin -d 'Read standard input to its end, as text, and let the command read it'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -l attach -d 'Come back to this terminal, and write there, instead of opening one' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -s e -l env -d 'Set a variable, over those of the sandbox; may be given often' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -s w -l workdir -d 'Begin in this directory; relative to the work directory' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -s u -l user -d 'Run as this user, where the runtime lets callers choose: a name or a number, and a group after a colon' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand shell" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -l rm -d 'Remove this run, which has to be over, and its output instead; may be given often' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand runs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -l since-seq -d 'Begin with this record' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -s f -l follow -d 'Go on showing what it writes, until it ends or this is interrupted'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -s s -l signal -d 'The signal: its name or its number' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l tenant -d 'Only those of this tenant\'s sessions' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l kind -d 'Only operations, what became of sessions, or neither' -r -f -a "operation\t''
lifecycle\t''
service\t''"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l op -d 'Only this operation, such as exec, or this fact, such as hibernated' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l since -d 'Only those of the last while, such as 90s, 10m, 2h or 1d' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l after -d 'Only what came after this sequence number' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l limit -d 'At most so many, the oldest first; the newest 200 if not given' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -s f -l follow -d 'Go on showing what is done, until interrupted or the session is gone'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -l purge -d 'Remove their files too'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -s y -l yes -d 'Do not ask before files are removed'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand hibernate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand wake" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -l close -d 'Close a session that is open, instead of refusing'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -s y -l yes -d 'Do not ask'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand purge" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -s q -l quiet -d 'Print ids and nothing else'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand workspaces" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -l format -d 'How the archive is written' -r -f -a "tar\t'Plain tar'
tar.zst\t'Tar compressed by zstd'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l runtime -d 'The runtime of an id that is not known yet' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l tenant -d 'The tenant of an id that is not known yet' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l replace -d 'Have the archive take the place of files that are there, instead of refusing'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -l with-key -d 'Have the key of all session tokens in it, to restore it on another host; whoever reads it can use every session'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand backup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand health" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l within -d 'Show what is due within this time, such as 90s, 10m, 2h or 1d; until the next sweep if not given' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l dry-run -d 'Do nothing but show what is taken, and why'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -l url -d 'Where the service is: http://HOST:PORT or unix:///PATH' -r -f
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -l token-file -d 'Read the token from this file; - is standard input' -r -F
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -s o -l output -d 'How to print' -r -f -a "table\t'For people'
json\t'As the API has it'"
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -l timeout -d 'Wait at most this long for a reply (30 if not given); with exec and run, let the command run at most this long' -r
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -s y -l yes -d 'Do not ask'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -l no-headers -d 'Print tables without their first line'
complete -c sandboxctl -n "__fish_sandboxctl_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
