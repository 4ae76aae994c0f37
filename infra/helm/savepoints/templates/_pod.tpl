{{- define "savepoints.labels" -}}
app.kubernetes.io/name: savepoints
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "savepoints.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: SAVEPOINTS_STORE
    value: {{ .Values.store | quote }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  runAsNonRoot: true
  runAsUser: 185
{{- end }}
