/* Runs a fuzz target over files: the corpus as a plain test. Usage: fuzz_x FILE|FOLDER ... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t size = 0, capacity = 1 << 16;
    uint8_t *bytes = malloc(capacity);
    while (bytes != NULL && !feof(file)) {
        if (size == capacity) {
            uint8_t *more = realloc(bytes, capacity *= 2);
            if (more == NULL) {
                break;
            }
            bytes = more;
        }
        size_t n = fread(bytes + size, 1, capacity - size, file);
        if (n == 0) {
            break;
        }
        size += n;
    }
    fclose(file);
    /* An exact copy, so that the sanitizer sees the first byte past the end. */
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (exact != NULL && bytes != NULL) {
        memcpy(exact, bytes, size);
        LLVMFuzzerTestOneInput(exact, size);
    }
    free(exact);
    free(bytes);
    return 0;
}

int main(int argc, char **argv) {
    int failed = 0, count = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISREG(st.st_mode)) {
            failed |= run_file(argv[i]);
            count++;
            continue;
        }
        DIR *dir = opendir(argv[i]);
        struct dirent *entry;
        while (dir != NULL && (entry = readdir(dir)) != NULL) {
            if (entry->d_name[0] != '.') {
                char path[4096];
                snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
                failed |= run_file(path);
                count++;
            }
        }
        if (dir != NULL) {
            closedir(dir);
        }
    }
    printf("%d inputs\n", count);
    return failed != 0 || count == 0;
}
