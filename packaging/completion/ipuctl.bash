# Completion of ipuctl for bash, printed by `ipuctl completion bash`.
_ipuctl() {
    local word=${COMP_WORDS[COMP_CWORD]} words=''
    case "${COMP_WORDS[*]:1:COMP_CWORD-1}" in
    'submit'*) words='--input --output --file --tiles --accumulate --profile --profile-run --repeat --seed --check --compile-only --cache --name --label --hold --detach --idempotency-key --timeout --retry-for --verbose --quiet --format --socket --help' ;;
    'job list'*) words='--state --user --limit --format --socket --help' ;;
    'job show'*) words='--wait --format --socket --help' ;;
    'job events'*) words='--from --follow --retry-for --format --socket --help' ;;
    'job wait'*) words='--output --timeout --retry-for --verbose --quiet --format --socket --help' ;;
    'job outputs'*) words='--format --socket --help' ;;
    'job cancel'*) words='--format --socket --help' ;;
    'job hold'*) words='--format --socket --help' ;;
    'job release'*) words='--format --socket --help' ;;
    'job delete'*) words='--socket --help' ;;
    'profile show'*) words='--group-by --top --format --socket --help' ;;
    'profile export'*) words='--socket --help' ;;
    'package list'*) words='--key --user --format --socket --help' ;;
    'package show'*) words='--format --socket --help' ;;
    'package export'*) words='--socket --help' ;;
    'package import'*) words='--format --socket --help' ;;
    'device'*) words='reset drain resume --format --socket --help' ;;
    'device reset'*) words='--reason --format --socket --help' ;;
    'device drain'*) words='--reason --format --socket --help' ;;
    'device resume'*) words='--reason --format --socket --help' ;;
    'tile status'*) words='--format --socket --help' ;;
    'tile read'*) words='--format --socket --help' ;;
    'tile regs'*) words='--context --format --socket --help' ;;
    'tile disasm'*) words='--worker --supervisor --socket --help' ;;
    'ps'*) words='--format --socket --help' ;;
    'version'*) words='--format --socket --help' ;;
    'health'*) words='--format --socket --help' ;;
    'doctor'*) words='--format --socket --help' ;;
    'asm'*) words='--output --worker --supervisor --addr --define --socket --help' ;;
    'disasm'*) words='--worker --supervisor --addr --socket --help' ;;
    'tile run'*) words='--socket --help' ;;
    'completion'*) words='--socket --help' ;;
    'help'*) words='--socket --help' ;;
    'job') words='list show events wait outputs cancel hold release delete ' ;;
    'package') words='list show export import ' ;;
    'tile') words='status read regs disasm run ' ;;
    '') words='submit job profile package device tile ps version health doctor asm disasm tile completion help ' ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _ipuctl ipuctl
