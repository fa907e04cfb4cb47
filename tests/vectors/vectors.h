/* Sub-commands of the vectors program: each runs one file of vectors and answers an exit status. */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

int vectors_exchange(int argc, char **argv); /* argv: sub-command, FILE */
int vectors_isa(int argc, char **argv);      /* argv: sub-command, FILE [PREFIX of ids] */

#endif
