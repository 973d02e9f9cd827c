#ifndef FAKEVERBS_CONFIG_H
#define FAKEVERBS_CONFIG_H

struct fv_config;

/* fv_config_read fills in what the variables say; a value that cannot be
 * right ends the program. fv_config_directory makes the directory, and returns
 * an errno if others could write to it. */
void fv_config_read(struct fv_config *c);
int fv_config_directory(const char *dir);

#endif
