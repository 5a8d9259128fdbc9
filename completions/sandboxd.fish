# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_sandboxd_global_optspecs
    string join \n config= host= port= state-dir= runtime-dir= workspace-root= docker-host= log= log-format= h/help V/version
end

function __fish_sandboxd_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_sandboxd_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_sandboxd_using_subcommand
    set -l cmd (__fish_sandboxd_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c sandboxd -n "__fish_sandboxd_needs_command" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -s V -l version -d 'Print version'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -f -a "check" -d 'Check the configuration and print what holds and where it came from'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -f -a "verify" -d 'Check store, engine and disk while no daemon runs, and print what was found'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -f -a "backup" -d 'Write a backup of the store, whether a daemon runs or not'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -f -a "restore" -d 'Put a backup in the place of the store while no daemon runs'
complete -c sandboxd -n "__fish_sandboxd_needs_command" -f -a "store-probe" -d 'Open a store and close it again, in a process that may hang or die of it'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand check" -s h -l help -d 'Print help'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -l with-key -d 'Have the key of all session tokens in it, to restore it on another host; whoever reads it can use every session'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand backup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l force -d 'Rename a store that is there, instead of refusing'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -l void-tokens -d 'Give every session a new token, where the key of their tokens is lost'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l config -d 'Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l host -d 'Listen on this address (SANDBOXD_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l port -d 'Listen on this port; 0 lets the system choose (SANDBOXD_PORT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l state-dir -d 'Keep the store and the key here (SANDBOXD_STATE_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l runtime-dir -d 'Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l workspace-root -d 'Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l docker-host -d 'Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l log -d 'Log this much: a level or directives (SANDBOXD_LOG)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -l log-format -d 'Log in this form: text or json (SANDBOXD_LOG_FORMAT)' -r
complete -c sandboxd -n "__fish_sandboxd_using_subcommand store-probe" -s h -l help -d 'Print help'
